"""Runs a drain for a long time, and watches its memory, its files, its threads and what it keeps on
disk."""
