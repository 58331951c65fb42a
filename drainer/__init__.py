"""drainer: empties a stuck Kafka backlog, in order per sub-key, and never loses a thing.

The names here are what a handler needs; docs/design.md tells how the rest hangs together.
"""

from drainer.handler import Context, Handler
from drainer.message import Barrier, Message, Origin, SubMessage

__version__ = "0.1.0"

__all__ = ["Barrier", "Context", "Handler", "Message", "Origin", "SubMessage", "__version__"]
