"""Measures the limits of brokers whose capacity is known, twice, and again with half of it."""
