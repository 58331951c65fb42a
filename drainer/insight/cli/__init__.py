"""The commands inspect and estimate."""
