"""Saved plans: where they are, their journals and locks, and files that are replaced as a whole."""
