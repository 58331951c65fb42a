"""The command job, and its options."""
