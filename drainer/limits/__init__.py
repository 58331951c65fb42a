"""Where brokers break: the search for it, and the traffic that it needs. An extension."""
