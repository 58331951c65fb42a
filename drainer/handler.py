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
        """Write a record, and return when all in-sync replicas have it.

        Let exceptions through: they decide whether the drain tries again or ends. ``id`` becomes
        the last header, ``drainer.id``, and must be different for each record. By default drainer
        makes one.
        """

    def close(self) -> None:
        """Close the writer. Call it in ``Handler.close``."""


def no_extras(prefix: str) -> Mapping[str, str]:
    """Return no properties, for a context that has no client's file."""
    return {}


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a handler's ``open`` gets about its drain.

    Attributes:
        concurrency: how many calls of ``handle`` this process makes at once, for the size of a
            connection pool. With ``--concurrency auto`` it is the highest possible number, so open
            connections as they are needed.
        options: the ``--set name=value`` pairs, as they were typed.
        extras: ``extras("http.")`` returns the properties of the client's file that begin with
            ``http.``, by their names without the prefix. Other prefixes are ``schema.registry.``
            and ``aws.``. Some of the values are secrets.
    """

    topic: str
    group: str
    drain_id: str
    concurrency: int
    options: Mapping[str, str] = field(default_factory=dict)
    write_to: Callable[[str], Writer] | None = field(default=None, repr=False)
    extras: Callable[[str], Mapping[str, str]] = field(default=no_extras, repr=False)

    def writer(self, topic: str) -> Writer:
        """Return a writer to a topic of the drained cluster.

        The writer connects as the drain does, and keeps to its ``--broker-limits``. Call this
        method in a plain ``def open``, because it blocks while it looks up the topic.

        Raises Refused when the topic can't be written to, and RuntimeError outside of a drain.
        """
        if self.write_to is None:
            raise RuntimeError("no drain is running, so there is no topic to write to")
        return self.write_to(topic)


class _WithReason(Exception):
    """Base of the exceptions that take a reason. Raises TypeError if the reason is not text."""

    def __init__(self, reason: str = "") -> None:
        if not isinstance(reason, str):
            name = type(self).__name__
            delay = ", and a delay is after=…" if isinstance(self, Retry) else ""
            raise TypeError(f"{name}({reason!r}): the reason must be text{delay}")
        super().__init__(reason)


class Retry(_WithReason):
    """Raised by a handler to try this sub-message again later.

    This does not count as a failure or against ``--retries``, but ``sub.attempt`` counts it.
    ``after`` is the delay in seconds; without it, the delay is that of ``--tune retry-delay``.
    Raises TypeError or ValueError when ``after`` is not a number of seconds.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        if after is not None and not isfinite(after):
            raise ValueError(f"after={after} is not a number of seconds")
        super().__init__(reason)
        self.after = after


class Skip(_WithReason):
    """Raised by a handler to leave this sub-message unhandled. This is not a failure."""


class GiveUp(_WithReason):
    """Raised by a handler to give up a sub-message: ``--on-failure`` applies without retries."""


class Fatal(Exception):
    """Raised by a handler to halt the drain, even if ``--on-failure`` has another action."""


Results = Sequence[BaseException | None]
"""The outcomes of the sub-messages of one call, in their order. An outcome is None for a
sub-message that is done, and otherwise the exception that ``handle`` would have raised for it."""


class Handler:
    """The base class of handlers. Every method but ``handle`` has a default.

    A handler promises that operations on different sub-keys commute. Then any schedule that keeps
    the order of each lane ends in the same state as the serial one (docs/explanation/proofs.md).
    """

    plan_options: frozenset[str] = frozenset()
    """Names of the ``--set`` options that the plan keeps, so that a resume has them. The plan does
    not keep a value that looks like a secret."""

    def configure(self, options: Mapping[str, str]) -> None:
        """Take the options. drainer calls this once, before any other method.

        Raise ValueError here to refuse wrong options before the preview, and set ``max_batch`` here
        if it depends on an option. The method must not touch any other system.
        """

    def open(self, context: Context) -> Awaitable[None] | None:
        """Open connections and the like. Each worker process calls this before its first message.

        The method may be plain or async.
        """
        return None

    def split(self, message: Message) -> Iterable[SubMessage]:
        """Yield the sub-messages of a message, in their order. There may be none.

        The method must be pure and deterministic. After a crash it is called again, and its result
        has to match what was finished before. By default, the message is one sub-message with the
        message's key.
        """
        yield SubMessage(message.key, message.meaning)

    def handle(self, sub: SubMessage) -> Awaitable[None] | None:
        """Do the work of one sub-message.

        An ``async def`` runs on the event loop, a plain ``def`` on long-lived threads. After any
        exception but ``Retry``, ``Skip``, ``GiveUp`` and ``Fatal``, the call counts as failed, and
        ``--retries`` and ``--on-failure`` apply. After a crash, the method may be called again for
        the same ``sub.id``.
        """
        raise NotImplementedError

    def is_outage(self, error: BaseException) -> bool | None:
        """Return True if an error is the downstream's fault, and False if it is the message's.

        ``error`` is what ``handle`` raised, or a TimeoutError after ``--tune timeout``. With None,
        the default, drainer decides by its table of exceptions (docs/howto/failures.md).
        """
        return None

    whole_messages: bool = False
    """Whether ``handle`` needs ``sub.message.value``. Otherwise a drain on Spark leaves it out."""

    max_batch: int = 100
    batch_of: Literal["lanes", "lane"] = "lanes"

    def handle_batch(
        self, subs: Sequence[SubMessage]
    ) -> Awaitable[Results | None] | Results | None:
        """Do the work of up to ``max_batch`` sub-messages in one call. It replaces ``handle``.

        The call gets the sub-messages that are ready when it starts. With ``batch_of = "lanes"``,
        each of them has a different sub-key. With ``"lane"``, they all have the same sub-key and
        come in its order. ``--concurrency`` counts calls.

        Return None if all are done. If the method raises, none is done: drainer tries them again in
        calls of half the size, until the one that fails is alone. Or return a list with an entry
        for each sub-message: None if it is done, or an exception (``Retry``, ``Skip``, ``GiveUp``
        or any other), which counts as if ``handle`` had raised it for that sub-message. ``await
        asyncio.gather(…, return_exceptions=True)`` returns such a list. With ``batch_of = "lane"``,
        drainer handles again all sub-messages after the first one that is neither done nor skipped,
        even if their own entries are None.
        """
        raise NotImplementedError

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        """Return one sub-message that does what ``earlier`` and then ``later`` would do.

        Return None to keep the two apart. They have the same sub-key and follow each other in its
        order, and ``earlier`` may itself stand for several. Examples are "the last write wins",
        sums and unions. The method must be pure and change neither of them, because after a failure
        they are handled one by one. ``handle`` gets one sub-message, which has the id of the last
        one and all of them in ``sub.folded``. They are done once that call returns. The method is
        not called for sub-messages that have several sub-keys.
        """
        raise NotImplementedError

    def close(self) -> Awaitable[None] | None:
        """Close what ``open`` opened. drainer calls this at the end, unless it is killed.

        The method may be plain or async.
        """
        return None
