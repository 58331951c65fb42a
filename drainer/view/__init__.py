"""Output for people: words go to stderr, and data to stdout. Only this package imports rich.

A view gets a record and shows it. This package imports neither Kafka nor asyncio nor the command
line.
"""
