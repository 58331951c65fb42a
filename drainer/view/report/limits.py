"""The report of limits."""
