"""Originals of letters that only name a record: it is read where it was, before ``split``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from drainer.errors import BrokerUnreachable, Halted, NotADeadLetter, Refused, TopicMissing
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.kafka.spans import Span, read_spans
from drainer.letters.foreign import reader
from drainer.message import HeadersUnreadable, Message
from drainer.policy.dead_letter import Letter
from drainer.policy.exact_json import Encoding
from drainer.splitting import Prepare, Wait

READER = "drainer-originals"
GAP_OFFSETS = 500  # between two originals, that are read through: a seek takes longer
AHEAD_BYTES = 64 * 1024 * 1024  # of originals whose letters are not split yet
RETRY_S = 1.0

_Place = tuple[int, int]  # partition and offset


class Originals:
    """Reads letters, and completes those without a message by the record that they name."""

    def __init__(
        self, settings: ClientSettings, headers: Mapping[str, str], after: Prepare | None = None
    ) -> None:
        """``headers`` are a user's names; ``after`` prepares whole messages of letters."""
        # A consumer of any isolation level may have given it up.
        properties = {**settings.properties, ISOLATION: "read_uncommitted"}
        self._settings = replace(settings, properties=properties)
        self._read = reader(headers)
        self._after = after
        self._found: dict[_Place, Letter] = {}  # by the place of the letter
        self._put = self._taken = 0  # bytes, by the thread that prepares and the one that splits

    def prepare(self, messages: Iterable[Message], wait: Wait) -> None:
        """Read the originals of letters ahead, those of a topic at once."""
        by_topic: dict[str, list[Letter]] = {}
        whole: list[Letter] = []
        for message in messages:
            if message.value is not None and self._after is None:
                continue
            with suppress(NotADeadLetter):
                letter = self._read(message)
                if letter.lacks_message:
                    by_topic.setdefault(letter.topic, []).append(letter)
                elif letter.is_message:
                    whole.append(letter)
        for topic, letters in by_topic.items():
            while left := [each for each in letters if _place_of(each) not in self._found]:
                try:
                    for letter in self._complete(left):
                        if self._put - self._taken > AHEAD_BYTES:
                            return  # the others are read one by one
                        self._put += len(letter.payload or b"")
                        self._found[_place_of(letter)] = letter
                except Refused as error:
                    if type(error) not in (Refused, BrokerUnreachable):
                        raise
                    if not wait(RETRY_S, f"can't read originals of {topic}: {error}"):
                        return
            whole += [self._found[_place_of(each)] for each in letters]
        if self._after is not None:
            self._after([letter.message() for letter in whole], wait)

    def letter(self, message: Message) -> Letter:
        """Read a letter. Raises NotADeadLetter; Halted when its original can't be read now."""
        found = self._found.pop((message.partition, message.offset), None)
        if found is not None:
            self._taken += len(found.payload or b"")
            return found
        letter = self._read(message)
        if not letter.lacks_message:
            return letter
        try:
            return next(self._complete([letter]))
        except Refused as error:
            raise Halted(
                f"can't read the original of the dead letter at {message}: {error}", hint=error.hint
            ) from error

    def _complete(self, letters: Sequence[Letter]) -> Iterator[Letter]:
        """Complete letters of one topic; one without an original has that for its encoding."""
        topic = letters[0].topic
        logs: dict[int, LogBounds] = {}
        try:
            with Cluster.connect(self._settings) as cluster:
                there = cluster.topic(topic)
                numbers = {letter.message_partition for letter in letters} & {*there.partitions}
                logs = cluster.log_bounds(topic, numbers, "read_uncommitted")
        except TopicMissing:
            pass
        wanted: dict[_Place, list[Letter]] = {}
        for letter in letters:
            log = logs.get(letter.message_partition)
            if log is None or letter.message_offset >= log.end:
                yield replace(letter, payload_encoding=Encoding.ELSEWHERE)
            elif letter.message_offset < log.start:
                yield replace(letter, payload_encoding=Encoding.GONE)
            else:
                place = letter.message_partition, letter.message_offset
                wanted.setdefault(place, []).append(letter)
        if not wanted:
            return
        for batch in read_spans(
            self._settings, topic, there.topic_id, READER, _spans(sorted(wanted))
        ):
            for message in batch.messages:
                for letter in wanted.pop((message.partition, message.offset), ()):
                    yield _completed(letter, message)
        for left in wanted.values():  # compaction
            yield from (replace(letter, payload_encoding=Encoding.GONE) for letter in left)


def _place_of(letter: Letter) -> _Place:
    return letter.partition, letter.offset


def _spans(places: Sequence[_Place]) -> list[Span]:
    found: list[Span] = []
    for partition, offset in places:
        last = found[-1] if found else None
        if last and last.partition == partition and offset - last.end <= GAP_OFFSETS:
            found[-1] = Span(partition, last.start, offset + 1)
        else:
            found.append(Span(partition, offset, offset + 1))
    return found


def _completed(letter: Letter, message: Message) -> Letter:
    if letter.message_key not in (None, message.key):  # the topic was made again
        return replace(letter, payload_encoding=Encoding.ELSEWHERE)
    headers: list[tuple[str, bytes | None]] = []
    with suppress(HeadersUnreadable):
        headers = list(message.headers)
    return replace(
        letter,
        payload=message.value,
        payload_encoding=Encoding.NULL if message.value is None else Encoding.BYTES,
        message_key=message.key,
        timestamp=message.timestamp,
        message_headers=len(headers),
        headers=tuple(headers),
    )
