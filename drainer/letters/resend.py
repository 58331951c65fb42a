"""The handler of ``redrive --to``. It appends the messages of letters to a topic."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from drainer.errors import DrainerError, RecordTooLarge, TopicMissing, UsageError
from drainer.handler import Context, Fatal, GiveUp, Handler, Retry, Writer
from drainer.host.calls import blocking_call
from drainer.kafka.cluster import Cluster
from drainer.letters.foreign import REDRIVES
from drainer.message import Header, SubMessage
from drainer.model.terms import RedriveSettings
from drainer.policy.dead_letter import Letter
from drainer.policy.redrive import SOURCE, Redriven

REFERENCE = f"{__name__}:Resend"
HANDLER = "handler"  # The value of --to that names no topic.
TOPICS_MOST = 32  # At most this many topics are written to at once. Each needs a producer.
WAIT_S = 0.2  # If all TOPICS_MOST are in use, a letter tries again after this time.
GROUPS_MOST, GROUPS_S = 100, 2.0  # At most this many groups are looked at, for this long.

_OWN = (REDRIVES, "drainer.topic", "drainer.id")


class Resend(Handler):
    """Writes the message of each letter to a topic, and waits until all in-sync replicas have it.

    Letters with the same message key are written one after the other. If the topic is the message's
    own, the record goes to the same partition, if that exists. The record has the message's headers
    and three of drainer's: the topic that the message came from, the number of redrives, and an id.
    If a crash repeats the record, the repeat has the same id.
    """

    writes_records = True

    def __init__(self, to: str = SOURCE) -> None:
        self._to = to
        self._context: Context | None = None
        self._writing_to: dict[str, _Writing] = {}

    def of_letters(self, redrive: RedriveSettings) -> Resend:
        """Return the handler of a redrive. It gets the letters themselves."""
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
        topic = letter.topic if self._to == SOURCE else self._to
        writing = self._writing(topic)
        writing.calls += 1
        try:
            await self._write(letter, await asyncio.shield(writing.writer))
        except (RecordTooLarge, TopicMissing) as error:  # Other letters can still be written.
            raise GiveUp(str(error)) from error
        finally:
            writing.calls -= 1
            if not writing.is_open and self._writing_to.get(topic) is writing:
                del self._writing_to[topic]  # The next letter tries again.

    async def _write(self, letter: Letter, writer: Writer) -> None:
        # If the letter does not name the message's partition, the key chooses one.
        placed = letter.place != letter.topic
        same = self._to == SOURCE and placed and letter.message_partition < writer.partitions
        redrives = letter.redrives + 1
        own: tuple[Header, ...] = (
            ("drainer.topic", letter.topic.encode()),
            (REDRIVES, str(redrives).encode()),
        )
        await writer.write(
            letter.message().value,
            letter.message_key,
            partition=letter.message_partition if same else -1,
            headers=(*(each for each in letter.headers if each[0] not in _OWN), *own),
            id=f"{letter.id}:{redrives}",
        )

    def close(self) -> None:
        for writing in self._writing_to.values():
            writing.close()
        self._writing_to.clear()

    def _writing(self, topic: str) -> _Writing:
        # A topic becomes known when a letter names it. Its writer is made in a thread, because that
        # asks the brokers for the topic.
        known = self._writing_to.pop(topic, None)
        if known is None:
            if len(self._writing_to) >= TOPICS_MOST:
                self._close_idle()
            assert self._context is not None
            known = _Writing(blocking_call(self._context.writer, topic))
        self._writing_to[topic] = known  # The topic that was used last is the last entry.
        return known

    def _close_idle(self) -> None:
        for topic, writing in self._writing_to.items():
            if not writing.calls:
                blocking_call(self._writing_to.pop(topic).close)
                return
        raise Retry(f"letters are on their way to {TOPICS_MOST} topics", after=WAIT_S)


@dataclass(eq=False, slots=True)
class _Writing:
    """The writer of a topic, which may still be in the making, and the number of calls with it."""

    writer: asyncio.Future[Writer]
    calls: int = 0

    @property
    def is_open(self) -> bool:
        if not self.writer.done():
            return True
        return not self.writer.cancelled() and self.writer.exception() is None

    def close(self) -> None:
        if self.writer.done() and self.is_open:
            self.writer.result().close()


def ensure_no_loop(to: str, topic: str, parking: str | None) -> None:
    """Ensure that no letter comes back to the topic that it is read from. Raises UsageError."""
    if topic in (to, parking) or (parking is not None and parking == to):
        raise no_way_back(topic if topic in (to, parking) else parking)


def no_way_back(topic: str | None) -> UsageError:
    return UsageError(
        f"{topic} can't get its own letters again",
        hint="Name another topic with --to or --parking-topic.",
    )


def groups_of(cluster: Cluster, topics: list[str]) -> str:
    """Name the groups with offsets in these topics that are found within GROUPS_S."""
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
    others = "streams or share groups" if whole else "others: drainer could not look at all groups"
    return f"{', '.join(found) or 'none that is known'}, and perhaps {others}"
