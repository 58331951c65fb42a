"""drainer: empties a stuck Kafka backlog before the deadline, in order and without losing data.

The names that handlers need are imported at once. The names for programs that drain are imported
when they are first used, so that a module with only a handler does not load a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drainer.handler import Context, Fatal, GiveUp, Handler, Retry, Skip
from drainer.message import Barrier, Message, Origin, SubMessage

if TYPE_CHECKING:
    from drainer.api import drain, drain_async, resume, resume_async
    from drainer.engine.control import Control
    from drainer.engine.preview import Preview
    from drainer.errors import DrainerError
    from drainer.insight.api import estimate, inspect
    from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
    from drainer.model.status import Status, Summary
    from drainer.model.terms import PayloadSettings

__version__ = "0.1.0"

_PROGRAMS = {
    "Control": "engine.control",
    "DrainerError": "errors",
    "FailureSettings": "model.settings",
    "LocalSettings": "model.settings",
    "OnFailure": "model.settings",
    "PayloadSettings": "model.terms",
    "Preview": "engine.preview",
    "Status": "model.status",
    "Summary": "model.status",
    "drain": "api",
    "drain_async": "api",
    "estimate": "insight.api",
    "inspect": "insight.api",
    "resume": "api",
    "resume_async": "api",
}

__all__ = [
    "Barrier",
    "Context",
    "Control",
    "DrainerError",
    "FailureSettings",
    "Fatal",
    "GiveUp",
    "Handler",
    "LocalSettings",
    "Message",
    "OnFailure",
    "Origin",
    "PayloadSettings",
    "Preview",
    "Retry",
    "Skip",
    "Status",
    "SubMessage",
    "Summary",
    "__version__",
    "drain",
    "drain_async",
    "estimate",
    "inspect",
    "resume",
    "resume_async",
]


def __getattr__(name: str) -> Any:
    if name not in _PROGRAMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PROGRAMS[name]}"), name)
