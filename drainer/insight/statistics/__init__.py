"""What a backlog is made of: how work is spread over keys, sizes, kinds, and its age."""
