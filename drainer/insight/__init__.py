"""Contents of a backlog, and the time that a drain of it takes. An extension."""
