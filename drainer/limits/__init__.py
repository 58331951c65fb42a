"""An extension that finds the load that brokers tolerate, and keeps a drain below it."""
