"""The handler of ``redrive --to``: appends letters' messages to their source, or to a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from time import monotonic

from drainer.engine.loop import blocking_call
from drainer.errors import DrainerError, RecordTooLarge, TopicMissing, UsageError
from drainer.handler import Context, Fatal, GiveUp, Handler, Writer
from drainer.kafka.cluster import Cluster
from drainer.letters.foreign import REDRIVES
from drainer.message import SubMessage
from drainer.model.terms import RedriveSettings
from drainer.policy.dead_letter import Header
from drainer.policy.redrive import SOURCE, Redriven

REFERENCE = f"{__name__}:Resend"
HANDLER = "handler"  # as --to: no topic
GROUPS_MOST, GROUPS_S = 100, 2.0  # that are looked at for those of a topic

_OWN = (REDRIVES, "drainer.topic", "drainer.id")


class Resend(Handler):
    """Writes each letter's message to a topic; it is done when all in-sync replicas have it.

    Letters of a message key are written one after the other. A source gets a record in the
    partition that the message was in, while it has it. The record has the message's headers, and
    drainer's own: where it came from, how often it was redriven, and an id that a repeat after a
    crash has, too.
    """

    writes_records = True

    def __init__(self, to: str = SOURCE) -> None:
        self._to = to
        self._context: Context | None = None
        self._writers: dict[str, asyncio.Future[Writer]] = {}

    def of_letters(self, redrive: RedriveSettings) -> Resend:
        """Make the one of a redrive, which gets the letters themselves."""
        return Resend(redrive.to or SOURCE)

    def open(self, context: Context) -> None:
        self._context = context

    async def handle(self, sub: SubMessage) -> None:
        if not isinstance(sub, Redriven):
            raise UsageError(
                f"{REFERENCE} handles dead letters only", hint="Use redrive --to source."
            )
        letter = sub.letter
        if not letter.whole:
            raise Fatal(f"{sub} is a part of its letter: only whole ones can be sent")
        try:
            writer = await self._writer(letter.topic if self._to == SOURCE else self._to)
        except TopicMissing as error:
            raise GiveUp(str(error)) from error
        same = self._to == SOURCE and letter.message_partition < writer.partitions
        redrives = letter.redrives + 1
        own: tuple[Header, ...] = (
            ("drainer.topic", letter.topic.encode()),
            (REDRIVES, str(redrives).encode()),
        )
        try:
            await writer.write(
                letter.message().value,
                letter.message_key,
                partition=letter.message_partition if same else -1,
                headers=(*(each for each in letter.headers if each[0] not in _OWN), *own),
                id=f"{letter.id}:{redrives}",
            )
        except RecordTooLarge as error:  # others fit
            raise GiveUp(str(error)) from error

    def close(self) -> None:
        for made in self._writers.values():
            if made.done() and made.exception() is None:
                made.result().close()
        self._writers.clear()

    def _writer(self, topic: str) -> Awaitable[Writer]:
        # Which topics they are is seen as they come; a writer looks at its topic, which blocks.
        known = self._writers.get(topic)
        if known is None or (known.done() and known.exception() is not None):
            assert self._context is not None
            known = blocking_call(self._context.writer, topic)
            self._writers[topic] = known
        return asyncio.shield(known)


def ensure_no_loop(to: str, topic: str, parking: str | None) -> None:
    """Raises UsageError if letters would come back to where they are read."""
    if topic in (to, parking) or (parking is not None and parking == to):
        raise UsageError(
            f"{topic if topic in (to, parking) else parking} can't get its own letters again",
            hint="Name another topic with --to or --parking-topic.",
        )


def groups_of(cluster: Cluster, topics: list[str]) -> str:
    """Name the groups that have offsets in these topics, as far as can be seen in a moment."""
    found, until_s, whole = list[str](), monotonic() + GROUPS_S, False
    with suppress(DrainerError):
        parts: dict[str, tuple[int, ...]] = {}
        for topic in topics:
            with suppress(TopicMissing):
                parts[topic] = cluster.topic(topic, "DESCRIBE").partitions
        names = [name for name in cluster.group_names() if not name.startswith("drainer.")]
        whole = 0 < len(names) <= GROUPS_MOST
        for name in names[:GROUPS_MOST]:
            if monotonic() > until_s:
                whole = False
                break
            if any(
                at is not None
                for topic, numbers in parts.items()
                for at in cluster.committed(name, topic, numbers).values()
            ):
                found.append(name)
    more = "" if whole else ", and perhaps others: drainer could not look at all groups"
    return (", ".join(found) or "none that is known") + more
