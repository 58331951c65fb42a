"""Deliberate mutants: each breaks a law, and the tests must notice."""
