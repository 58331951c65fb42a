"""Traffic from many executors."""
