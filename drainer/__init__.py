"""drainer: empties a stuck Kafka backlog, in order per sub-key, and never loses a thing.

The names here are what a handler needs. docs/explanation/how-it-works.md explains the rest.
"""

from drainer.handler import Context, Fatal, GiveUp, Handler, Retry, Skip
from drainer.message import Barrier, Message, Origin, SubMessage

__version__ = "0.1.0"

__all__ = [
    "Barrier",
    "Context",
    "Fatal",
    "GiveUp",
    "Handler",
    "Message",
    "Origin",
    "Retry",
    "Skip",
    "SubMessage",
    "__version__",
]
