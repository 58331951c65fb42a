"""The Kafka side of ``drainer limits``: test topics, producers, consumers and replicas."""
