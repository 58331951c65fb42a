"""A whole backlog looked at by many tasks."""
