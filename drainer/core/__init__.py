"""The pure core: it has no Kafka, asyncio, threads or clock. Each object has one owner."""
