"""An extension: find the load that brokers tolerate, and keep a drain below it."""
