"""What becomes of what fails: retries, the circuit breaker, dead letters, and their redrive."""
