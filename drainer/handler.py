"""The user's plugin: how a message is split, and how a sub-message is handled."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field

from drainer.message import Message, SubMessage


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is told when it is opened.

    ``options`` are the ``--set name=value`` pairs, as they were typed. ``concurrency`` is how many
    sub-messages this process handles at once: the size for a connection pool.
    """

    topic: str
    group: str
    drain_id: str
    concurrency: int
    options: Mapping[str, str] = field(default_factory=dict)


class Handler:
    """Base class of handlers; every method but ``handle`` has a default.

    The promise that a handler makes: operations on different sub-keys commute. Any schedule that
    keeps each lane's order then ends in the same state as the serial one (docs/correctness.md).
    """

    def open(self, context: Context) -> Awaitable[None] | None:
        """Called once per worker process before the first message; plain or async."""
        return None

    def split(self, message: Message) -> Iterable[SubMessage]:
        """The sub-messages of a message, in their order; none at all is fine.

        Must be pure and deterministic: after a crash it is called again, and its result has to
        line up with what was finished before. Default: one sub-message with the message's key.
        """
        yield SubMessage(message.key, message.value)

    def handle(self, sub: SubMessage) -> Awaitable[None] | None:
        """Does the work of one sub-message.

        ``async def`` runs on the event loop, a plain ``def`` on long-lived threads. Raising means
        that it failed. It may be called again for the same ``sub.id`` after a crash.
        """
        raise NotImplementedError

    def close(self) -> Awaitable[None] | None:
        """Called once when the drain ends, however it ends short of a kill; plain or async."""
        return None
