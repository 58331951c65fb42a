"""Gains of more tasks on Spark: reading one partition."""
