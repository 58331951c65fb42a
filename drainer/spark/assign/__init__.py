"""Assigning work to tasks, and the account of what they report."""
