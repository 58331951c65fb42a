"""Access to Kafka: the only package that imports confluent_kafka.

Its calls block, and are safe from any thread. Kafka's own errors are raised as drainer's, with a
hint and without secrets.
"""
