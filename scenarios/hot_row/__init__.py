"""Shows what taking critical lanes first gains if one sub-key has a large share of the work."""
