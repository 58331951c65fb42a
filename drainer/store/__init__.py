"""The offset plan in a file: its journal, its lock, and files that are written whole."""
