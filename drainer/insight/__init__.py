"""An extension that inspects a backlog, and estimates how long a drain of it takes."""
