"""A demo: the emergency for which drainer exists, acted out on a real broker."""
