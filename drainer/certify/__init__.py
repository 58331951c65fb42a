"""What the promise of a handler can be held to: drainer.testing, and the command. An extension."""
