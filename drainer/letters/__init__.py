"""Dead letters after the drain: look at them, and redrive them. A wing."""
