"""The load at which brokers break: its search, and the traffic for that. An extension."""
