"""Dead letters after the drain: look at them, and redrive them. An extension."""
