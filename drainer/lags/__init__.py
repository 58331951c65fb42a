"""An extension that says how far consumer groups are behind, and whether they catch up in time."""
