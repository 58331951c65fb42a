"""Files: the offset plan, its journal and its lock. Nothing else of drainer writes to a disk."""
