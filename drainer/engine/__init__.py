"""The engines: they move sub-messages between Kafka, the core and the handler.

Nothing here knows the terminal.
"""
