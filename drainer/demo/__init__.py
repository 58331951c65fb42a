"""The emergency that drainer is for, acted out on a real broker."""
