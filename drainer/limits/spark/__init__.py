"""The Spark side of ``drainer limits``: clients in tasks, and brokers' metrics by JMX."""
