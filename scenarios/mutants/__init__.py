"""Deliberate mutants, each of which breaks a law, so that the tests must notice it."""
