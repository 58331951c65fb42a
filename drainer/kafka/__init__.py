"""Access to Kafka. In the core, no other package imports confluent_kafka.

Its calls block, and may be made from any thread. Kafka's errors are raised as drainer's own, with a
hint and without secrets.
"""
