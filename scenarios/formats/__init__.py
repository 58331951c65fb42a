"""Measures what the formats of a registry cost in a drain."""
