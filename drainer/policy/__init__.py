"""Pure decisions about sub-messages: retries, the breaker, dead letters, rules and rates."""
