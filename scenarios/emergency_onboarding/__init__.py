"""The emergency that drainer is made for, with the same story as ``drainer demo``."""
