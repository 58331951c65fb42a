"""Shows what taking the hottest lane first gains if one sub-key has a large share of the work."""
