"""Rules: what of a backlog is left out on purpose."""
