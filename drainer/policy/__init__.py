"""Decisions about sub-messages: retries, the breaker, dead letters, rules, rates; pure."""
