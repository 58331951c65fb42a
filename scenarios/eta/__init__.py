"""How near the time left that a running drain shows is to the truth."""
