"""A demo that plays the emergency for which drainer exists on a real broker."""
