"""How long a drain will take: the real lanes on a virtual clock."""
