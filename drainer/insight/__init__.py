"""Looking before it acts: what a backlog is made of, and how long a drain of it takes. A wing."""
