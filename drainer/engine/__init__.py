"""The engines: they move sub-messages between Kafka, the core and the handler. No terminal here."""
