"""Output for people: words on stderr, data on stdout. The only package that imports rich.

It keeps out Kafka, asyncio and the command line: a view is given a record and shows it.
"""
