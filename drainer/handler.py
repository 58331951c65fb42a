"""The user's plugin: how a message is split, and how a sub-message is handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, Protocol

from drainer.message import Message, SubMessage


class Writer(Protocol):
    """Writes records to one topic of the drained cluster (``Context.writer``)."""

    topic: str
    partitions: int

    async def write(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        id: str | None = None,
    ) -> None:
        """Returns when all in-sync replicas have the record. Let what it raises through: it decides
        whether the drain tries again, or ends. ``id`` becomes the last header, ``drainer.id``: no
        other record may have the same; by default it is a new one."""

    def close(self) -> None:
        """For ``Handler.close``."""


def no_extras(prefix: str) -> Mapping[str, str]:
    """The properties for extensions where there is no client's file: none."""
    return {}


@dataclass(frozen=True, slots=True)
class Context:
    """Surroundings of a handler, which ``open`` gets.

    ``options`` are the ``--set name=value`` pairs, as they were typed. ``concurrency`` is how many
    calls of ``handle`` this process makes at once: the size for a connection pool. With
    ``--concurrency auto`` it is the most that it may become: open connections as they are needed.
    ``extras("http.")`` are those properties of the client's file, by their names without that;
    ``schema.registry.`` and ``aws.`` are the other prefixes. Some are secrets.
    """

    topic: str
    group: str
    drain_id: str
    concurrency: int
    options: Mapping[str, str] = field(default_factory=dict)
    write_to: Callable[[str], Writer] | None = field(default=None, repr=False)
    extras: Callable[[str], Mapping[str, str]] = field(default=no_extras, repr=False)

    def writer(self, topic: str) -> Writer:
        """Writes to a topic of the drained cluster, as the drain connects and within its
        ``--broker-limits``. It looks at the topic, so it blocks: call it in a plain ``def open``.

        Raises Refused when it can't be written to; RuntimeError outside of a drain.
        """
        if self.write_to is None:
            raise RuntimeError("no drain is running, so there is no topic to write to")
        return self.write_to(topic)


class _WithReason(Exception):
    """Raises TypeError when the reason is not text."""

    def __init__(self, reason: str = "") -> None:
        if not isinstance(reason, str):
            name = type(self).__name__
            delay = ", and a delay is after=…" if isinstance(self, Retry) else ""
            raise TypeError(f"{name}({reason!r}): the reason must be text{delay}")
        super().__init__(reason)


class Retry(_WithReason):
    """Raised by a handler: not now, try this sub-message again later.

    It is no failure and spends none of ``--retries``; ``sub.attempt`` counts it. Without ``after``
    (in seconds) the delay is that of ``--tune retry-delay``. Raises TypeError or ValueError when
    that is no number of seconds.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        if after is not None and not isfinite(after):
            raise ValueError(f"after={after} is not a number of seconds")
        super().__init__(reason)
        self.after = after


class Skip(_WithReason):
    """Raised by a handler: this sub-message is not to be handled, and that is no failure."""


class GiveUp(_WithReason):
    """Raised by a handler to give a sub-message up now: ``--on-failure`` applies without
    retries."""


class Fatal(Exception):
    """Raised by a handler: halt the drain, even if ``--on-failure`` has another action."""


Results = Sequence[BaseException | None]
"""Outcomes of the sub-messages of one call, in their order: None for done, or what ``handle`` would
have raised."""


class Handler:
    """Base class of handlers; every method but ``handle`` has a default.

    The promise that a handler makes: operations on different sub-keys commute. Any schedule that
    keeps each lane's order then ends in the same state as the serial one
    (docs/explanation/proofs.md).
    """

    plan_options: frozenset[str] = frozenset()
    """Names of the ``--set`` options that the plan keeps, for a resume to have them. A value that
    looks like a secret is not kept."""

    def configure(self, options: Mapping[str, str]) -> None:
        """Called once before anything else, with the options: to refuse what is wrong in them
        before the preview (raise ValueError), and to set ``max_batch``. Must touch nothing."""

    def open(self, context: Context) -> Awaitable[None] | None:
        """Called once per worker process before the first message; plain or async."""
        return None

    def split(self, message: Message) -> Iterable[SubMessage]:
        """The sub-messages of a message, in their order; none at all is fine.

        Must be pure and deterministic: after a crash it is called again, and its result has to
        line up with what was finished before. Default: one sub-message with the message's key.
        """
        yield SubMessage(message.key, message.meaning)

    def handle(self, sub: SubMessage) -> Awaitable[None] | None:
        """Does the work of one sub-message.

        ``async def`` runs on the event loop, a plain ``def`` on long-lived threads. Raising means
        that it failed: ``--retries`` and ``--on-failure`` apply, unless it is ``Retry``,
        ``Skip``, ``GiveUp`` or ``Fatal``. It may be called again for the same ``sub.id`` after a
        crash.
        """
        raise NotImplementedError

    def is_outage(self, error: BaseException) -> bool | None:
        """Whether an error is the downstream's fault (True) or the message's own (False).

        ``error`` is what ``handle`` raised, or a TimeoutError after ``--tune timeout``. None, the
        default, leaves it to drainer's table of exceptions (docs/howto/failures.md).
        """
        return None

    whole_messages: bool = False
    """Whether ``handle`` needs ``sub.message.value``: a drain on Spark leaves it out otherwise."""

    max_batch: int = 100
    batch_of: Literal["lanes", "lane"] = "lanes"

    def handle_batch(
        self, subs: Sequence[SubMessage]
    ) -> Awaitable[Results | None] | Results | None:
        """Instead of ``handle``: does the work of up to ``max_batch`` sub-messages in one call.

        They are of as many sub-keys (``batch_of = "lanes"``), or a run of one sub-key in its order
        (``"lane"``): what is ready when the call starts. ``--concurrency`` counts calls.

        Returning None means that all are done, and raising that none is: they are tried in calls
        of half the size, until the one that fails is by itself. Or return a list with an entry for
        each: None for done, or an exception (``Retry``, ``Skip``, ``GiveUp`` or any other), which
        counts as if that one had raised it alone. ``await asyncio.gather(…,
        return_exceptions=True)`` gives such a list. In a run of one sub-key, what is behind an
        entry that is not done or skipped is handled again, even if its own entry is None.
        """
        raise NotImplementedError

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        """One sub-message that does what ``earlier`` and then ``later`` would do; None to keep
        them apart.

        They are neighbours that wait on one lane: the last write wins, sums, unions. ``earlier``
        may be folded already. Must be pure and leave both as they are, for after a failure they are
        handled one by one. What ``handle`` gets has the identity of the last one, and all of them
        as ``sub.folded``; they are done together. Not called where there are several sub-keys.
        """
        raise NotImplementedError

    def close(self) -> Awaitable[None] | None:
        """Called once when the drain ends, however it ends short of a kill; plain or async."""
        return None
