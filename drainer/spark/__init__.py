"""Spark: drains on a session, a topic as a data source, and sessions. Spark needs Java.

Each name is imported when it is first used. Some of them import PySpark, which takes half a second,
and which modules such as ``drainer.spark.session.settings`` don't need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drainer.spark.api import Drained, drain
    from drainer.spark.reading.source import DrainerSource, register
    from drainer.spark.session.start import spark_session
    from drainer.spark.verbs import handle, read, split

__all__ = [
    "Drained",
    "DrainerSource",
    "drain",
    "handle",
    "read",
    "register",
    "spark_session",
    "split",
]

_IN = {
    "Drained": "api",
    "drain": "api",
    "spark_session": "session.start",
    "DrainerSource": "reading.source",
    "register": "reading.source",
    "handle": "verbs",
    "read": "verbs",
    "split": "verbs",
}


def __getattr__(name: str) -> Any:
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IN[name]}"), name)
