"""Measures what Spark gains and costs, with more tasks and more slots."""
