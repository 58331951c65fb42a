"""Access to Kafka: the only package that imports confluent_kafka.

Its calls block, and are safe from any thread. Kafka's own errors stop here: what comes out is
drainer's, with a hint and, as all errors, without secrets.
"""
