"""Limits at which a throttled broker breaks, twice, and again with half of it."""
