"""Spark: the topic as a data source, and sessions to read it in. Needs Java once it is used.

PySpark is imported with the first of these names: ``drainer.spark.settings`` does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drainer.spark.session import spark_session
    from drainer.spark.source import DrainerSource, register

__all__ = ["DrainerSource", "register", "spark_session"]


def __getattr__(name: str) -> Any:
    if name == "spark_session":
        from drainer.spark.session import spark_session  # noqa: PLC0415

        return spark_session
    if name in ("DrainerSource", "register"):
        from drainer.spark import source  # noqa: PLC0415

        return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
