"""Where brokers break: points of traffic, what a trial showed, and the search for the boundary."""
