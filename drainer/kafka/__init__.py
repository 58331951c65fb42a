"""Access to Kafka. In the core, no other package imports confluent_kafka.

Calls into this package block. They may be made from any thread, unless a docstring says otherwise.
Kafka's errors are raised as drainer's own, with a hint and without secrets.
"""
