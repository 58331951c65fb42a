"""The search and its findings, on a terminal."""
