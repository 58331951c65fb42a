"""The forecast of a drain: the real lanes on a virtual clock."""
