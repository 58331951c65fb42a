"""How many at once: a number, or the search for one."""
