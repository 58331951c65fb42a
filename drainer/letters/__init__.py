"""Dead letters after the drain: list, show and redrive them. An extension."""
