"""Errors of the time left: how near that that a running drain shows is to the truth."""
