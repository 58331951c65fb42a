"""Traffic on a broker."""
