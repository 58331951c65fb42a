"""The emergency that drainer is for; the same story as ``drainer demo``."""
