"""What becomes of a sub-message: retries, the breaker, dead letters, rules, rates; pure."""
