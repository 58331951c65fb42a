"""``kill -9`` at random moments until the backlog is drained: what is lost, what is repeated."""
