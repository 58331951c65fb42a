"""drainer: empties a stuck Kafka backlog before the deadline, in order and without losing data.

The names that handlers need are imported at once. The names for programs that drain are imported
when they are first used, so that a module with only a handler does not load a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drainer.handler import Context, Fatal, GiveUp, Handler, Retry, Skip
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.version import __version__

if TYPE_CHECKING:
    from drainer.api import drain, drain_async, resume, resume_async
    from drainer.engine.control import Control
    from drainer.engine.preview import Preview
    from drainer.errors import DrainerError
    from drainer.insight.api import estimate, inspect
    from drainer.lags.api import lag
    from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
    from drainer.model.status import Status, Summary
    from drainer.model.terms import PayloadSettings

_PROGRAMS = {
    "api": ("drain", "drain_async", "resume", "resume_async"),
    "engine.control": ("Control",),
    "engine.preview": ("Preview",),
    "errors": ("DrainerError",),
    "insight.api": ("estimate", "inspect"),
    "lags.api": ("lag",),
    "model.settings": ("FailureSettings", "LocalSettings", "OnFailure"),
    "model.status": ("Status", "Summary"),
    "model.terms": ("PayloadSettings",),
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
    "lag",
    "resume",
    "resume_async",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    for module, names in _PROGRAMS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
