"""Formats of a registry: their cost in a drain."""
