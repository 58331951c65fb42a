"""Spark: the topic as a data source, and sessions to read it in. Needs Java once it is used."""

from drainer.spark.session import spark_session
from drainer.spark.source import DrainerSource, register

__all__ = ["DrainerSource", "register", "spark_session"]
