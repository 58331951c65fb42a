"""The original records of letters that have no payload. They are read again before ``split``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from time import monotonic

from drainer.errors import (
    BrokerUnreachable,
    Halted,
    NotADeadLetter,
    Passing,
    Refused,
    TopicMissing,
    raised_as,
)
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.kafka.spans import Span, read_spans
from drainer.letters.foreign import counting, reader, redrives_of
from drainer.message import Header, HeadersUnreadable, Message
from drainer.policy.dead_letter import Letter
from drainer.policy.exact_json import Encoding
from drainer.split.splitting import Prepare, Wait

READER = "drainer-originals"
# If two originals are no further apart than this, the records between them are read as well,
# because a seek would take longer.
GAP_OFFSETS = 500
PART_BYTES = 16 * 1024 * 1024  # The originals that are in memory at once have about this size.
LETTERS_MOST = 2_000  # The originals of at most this many letters are read together.
LOOK_S = 5.0  # After this time, only the original of the first letter is still waited for.
CLOCKS_MS = 5_000  # The clocks of two hosts may differ by this much.
RETRY_S = 1.0

_Place = tuple[int, int]  # A partition and an offset.
_Read = tuple[Message, Letter]  # A record of the dead-letter topic, and its letter.


@dataclass(eq=False)
class Originals:
    """Reads letters, and completes those without payload with the record that they name.

    Attributes:
        settings: the settings of the clients that read originals.
        headers: the names of headers that the user gave.
        after: prepares the messages of letters before they are decoded.
        why_not: returns why a letter of a dead-letter topic is left alone, or None. The original of
            a letter that is left alone is not read.
    """

    settings: ClientSettings
    headers: Mapping[str, str]
    after: Prepare | None = None
    why_not: Callable[[Letter, str], str | None] = lambda *_: None

    def __post_init__(self) -> None:
        # The consumer that gave the record up may have had any isolation level.
        properties = {**self.settings.properties, ISOLATION: "read_uncommitted"}
        self._settings = replace(self.settings, properties=properties)
        self._read = reader(self.headers)
        # The number of letters that are read together. It adapts to the size of their originals.
        self._at_once = LETTERS_MOST

    def prepare(self, messages: Sequence[Message], wait: Wait) -> int:
        """Read many letters at once, and return how many of the first messages are ready.

        Each letter becomes ``decoded`` of its message. After LOOK_S, only the first message is
        still waited for.
        """
        while True:
            part = messages[: self._at_once]
            try:
                found, size, count = self._letters_of(part)
            except Refused as error:
                if type(error) not in (Refused, Passing, BrokerUnreachable):
                    raise
                if not wait(RETRY_S, f"can't read originals: {error}"):
                    return 0
            else:
                if size <= PART_BYTES or len(part) == 1:
                    break
                self._at_once = len(part) // 2
        if size:
            fitting = max(1, PART_BYTES * len(part) // size)
            self._at_once = min(2 * self._at_once, LETTERS_MOST, fitting)
        for message, letter in found:
            message.decoded = letter
            if message.value is None:
                message.size += len(letter.payload or b"")
        if self.after is not None:
            self.after([letter.message() for _, letter in found], wait)
        return count

    def letter(self, message: Message) -> Letter:
        """Return the letter of a message, and read its original unless ``prepare`` did that.

        Raises NotADeadLetter if it is none, and Halted if the original can't be read now.
        """
        if isinstance(message.decoded, Letter):
            return message.decoded
        letter = self._read(message)
        if not self._is_wanted(letter, message):
            return letter
        about = f"can't read the original of the dead letter at {message}: "
        with raised_as(Halted, Refused, about=about):
            return next(self._complete({letter.topic: [(message, letter)]}))[1]

    def _is_wanted(self, letter: Letter, message: Message) -> bool:
        return letter.lacks_message and self.why_not(letter, message.topic) is None

    def _letters_of(self, messages: Sequence[Message]) -> tuple[list[_Read], int, int]:
        """Read the letters of messages and their originals, as far as time and memory allow.

        Returns three things: the letters that are whole messages or have to be decoded, each with
        its message; the size of the originals in bytes; and how many of the first messages are
        done.
        """
        lacking: dict[str, list[_Read]] = {}
        found, size, until_s = list[_Read](), 0, 0.0
        for message in messages:
            if isinstance(message.decoded, Letter):
                continue
            if message.value is not None and self.after is None:
                continue
            with suppress(NotADeadLetter):
                letter = self._read(message)
                if self._is_wanted(letter, message):
                    lacking.setdefault(letter.topic, []).append((message, letter))
                elif letter.is_message or letter.payload_encoding is Encoding.RAW:
                    found.append((message, letter))
        left = dict.fromkeys(id(message) for each in lacking.values() for message, _ in each)
        needed = next(iter(left), None)  # Without this one, the redrive would make no progress.
        for message, letter in self._complete(lacking):
            until_s = until_s or monotonic() + LOOK_S  # The time counts once the topics are known.
            if needed not in left and monotonic() > until_s:
                break
            found.append((message, letter))
            left.pop(id(message), None)
            size += len(letter.payload or b"")
            if size > PART_BYTES:
                break
        first = (n for n, message in enumerate(messages) if id(message) in left)
        return found, size, next(first, len(messages))

    def _complete(self, lacking: Mapping[str, Sequence[_Read]]) -> Iterator[_Read]:
        """Complete letters, topic by topic. If an original is missing, the encoding tells why."""
        if not lacking:
            return
        with Cluster.connect(self._settings) as cluster:
            known = cluster.topics(lacking)
            for topic, letters in lacking.items():
                there = known.get(topic)
                if isinstance(there, TopicInfo):
                    yield from self._complete_of(cluster, there, letters)
                else:
                    absent = Encoding.FORBIDDEN if there else Encoding.ELSEWHERE
                    for record, letter in letters:
                        yield record, replace(letter, payload_encoding=absent)

    def _complete_of(
        self, cluster: Cluster, there: TopicInfo, letters: Sequence[_Read]
    ) -> Iterator[_Read]:
        ids = there.topic_id, there.name  # Letters of other tools have the name in place of the id.
        numbers = {each.message_partition for _, each in letters} & {*there.partitions}
        try:
            logs = cluster.log_bounds(there.name, numbers, "read_uncommitted")
        except TopicMissing:
            logs = {}
        wanted: dict[_Place, list[_Read]] = {}
        for record, letter in letters:
            log = logs.get(letter.message_partition)
            if log is None or letter.message_offset >= log.end or letter.topic_id not in ids:
                yield record, replace(letter, payload_encoding=Encoding.ELSEWHERE)
            elif letter.message_offset < log.start:
                yield record, replace(letter, payload_encoding=Encoding.GONE)
            else:
                place = letter.message_partition, letter.message_offset
                wanted.setdefault(place, []).append((record, letter))
        if not wanted:
            return
        spans = _spans(sorted(wanted))
        for batch in read_spans(self._settings, there.name, there.topic_id, READER, spans):
            for message in batch.messages:
                for record, letter in wanted.pop((message.partition, message.offset), ()):
                    yield record, completed(record, letter, message)
        # Compaction has removed the originals of the letters that remain.
        for record, letter in chain.from_iterable(wanted.values()):
            yield record, replace(letter, payload_encoding=Encoding.GONE)


def _spans(places: Sequence[_Place]) -> list[Span]:
    found: list[Span] = []
    for partition, offset in places:
        last = found[-1] if found else None
        if last and last.partition == partition and offset - last.end <= GAP_OFFSETS:
            found[-1] = Span(partition, last.start, offset + 1)
        else:
            found.append(Span(partition, offset, offset + 1))
    return found


def completed(record: Message, letter: Letter, original: Message) -> Letter:
    """Return a letter with the key, value and headers of its original."""
    if not _may_be_of(record, letter, original):  # The topic was deleted and made again.
        return replace(letter, payload_encoding=Encoding.ELSEWHERE)
    headers: list[Header] = []
    with suppress(HeadersUnreadable):
        headers = list(original.headers)
    encoding = Encoding.NULL if original.value is None else Encoding.BYTES
    found = replace(
        letter,
        payload=original.value,
        payload_encoding=encoding if letter.is_message else Encoding.ORIGINAL,
        message_key=original.key,
        timestamp=original.timestamp,
        message_headers=len(headers),
        headers=tuple(headers),
    )
    # If a letter was redriven, its count includes the redrives of its original.
    return counting(found, 0 if letter.redrives else redrives_of(original))


def _may_be_of(record: Message, letter: Letter, original: Message) -> bool:
    """Return whether a record may be the original of a letter, by its key and its time."""
    if letter.message_key not in (None, original.key):
        return False
    own, named, found = record.timestamp, letter.timestamp, original.timestamp
    if named not in (None, own):
        return named == found
    # The original was written before its letter.
    return own is None or found is None or found <= own + CLOCKS_MS
