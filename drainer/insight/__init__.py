"""What a backlog is made of, and how long a drain of it takes. An extension."""
