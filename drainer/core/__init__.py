"""The pure core: no Kafka, no asyncio, no threads, no clock of its own; one owner, no locks."""
