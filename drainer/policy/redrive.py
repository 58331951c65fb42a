"""Redriving: which dead letters are taken, and the sub-messages that they become again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from drainer.errors import NotADeadLetter, OtherFormat, TopicNotNamed
from drainer.message import Barrier, HeadersUnreadable, KeySums, Message, SubMessage, Unsplit
from drainer.model.order import lane_of
from drainer.model.sub_messages import identify_or_reject
from drainer.model.terms import RedriveSettings, TimeRange
from drainer.policy.dead_letter import OWN_HEADERS, Letter, ReadLetter, read_letter
from drainer.policy.exact_json import Encoding
from drainer.text.mask import TYPE_CHARACTERS

SOURCE = "source"  # With --to source, a letter goes to the topic that it comes from.
# The reason to leave a letter alone if it does not pass the filters of the redrive.
NOT_MATCHED = "not asked for"
NO_LETTER = "no dead letter that drainer recognises, or a damaged one"
NOT_MADE_AGAIN = "split now makes other sub-messages of its original"
# A function that splits a message. If it rejects the message, it gives an Unsplit.
Split = Callable[[Message], Iterable[SubMessage]]


def split_letter(
    settings: RedriveSettings,
    message: Message,
    split: Split | None = None,
    read: ReadLetter = read_letter,
    decode: Split | None = None,
) -> Iterator[SubMessage]:
    """Yield the sub-messages of a record in a dead-letter topic.

    A letter of a sub-message gives this sub-message. A letter of a whole message gives what the
    handler's ``split`` makes of it; without ``split`` it gives one sub-message. A record that is
    no letter gives one sub-message that is left alone. The sub-keys don't depend on the settings.

    ``read`` raises NotADeadLetter for a record that is no letter. ``decode`` decodes the value of a
    message in place. It yields nothing, unless it rejects the message: then it yields that as one
    unit.
    """
    try:
        letter = read(message)
    except OtherFormat:
        yield Unread(message.offset, "another version of drainer wrote it")
        return
    except TopicNotNamed:
        yield Unread(message.offset, "it names no topic: add --letter-header topic==TOPIC")
        return
    except NotADeadLetter:
        yield Unread(message.offset, NO_LETTER, for_good=not _may_be_anothers(message))
        return
    why = why_left_alone(settings, letter, message.topic)
    parts = [] if letter.why_not_redriven else _parts_of(settings, letter, split, decode)
    is_empty = not parts and (why is not None or not letter.is_message)
    if letter.lacks_message or letter.why_not_redriven or is_empty:
        yield Unread(message.offset, (why or NOT_MADE_AGAIN)[:TYPE_CHARACTERS])
        return
    for sub in parts:
        if why is None:
            yield sub
        elif isinstance(sub, Redriven):
            # The next run may select it, and a claim of an earlier run must find it at its index.
            yield LeftAlone(sub.key, why, sub)
        else:
            yield Unread(message.offset, why)


def why_left_alone(settings: RedriveSettings, letter: Letter, topic: str) -> str | None:
    """Return why a redrive leaves a letter of this dead-letter topic alone.

    Returns None when it takes the letter. It may still find that the original is gone.
    """
    if (never := letter.why_not_redriven) is not None:
        return never
    if not letter.matches(settings.letters):
        return NOT_MATCHED
    if letter.redrives >= settings.max_redrives:
        return f"already redriven {settings.max_redrives} times or more"
    if settings.to is None:
        return None
    if not (letter.whole if letter.lacks_message else letter.has_value):
        return "it is a part of a message, for a handler only"
    own = settings.to == SOURCE and letter.topic == topic
    return "it comes from this topic itself" if own else None


def not_redriven(ignored: Mapping[str, int] | None) -> int:
    """Count letters that a redrive selected, but left alone. ``ignored`` has counts by reason."""
    return sum(n for why, n in (ignored or {}).items() if why not in (NOT_MATCHED, NO_LETTER))


def _may_be_anothers(message: Message) -> bool:
    # A redrive with different names for --letter-header may recognise the record as a letter.
    try:
        names = [name for name, _ in message.headers]
    except HeadersUnreadable:
        return False
    return bool(names) and not any(name.startswith(OWN_HEADERS) for name in names)


class LeftAlone(SubMessage):
    """A record that this run does not handle, such as a dead letter that is not redriven.

    No lane waits for it. The payload is the reason. ``redriven`` is what another run would give the
    handler, or None if this version can't read it. ``for_good`` means that no run, of any version,
    would give it to the handler.
    """

    __slots__ = ("for_good", "redriven")

    def __init__(
        self, key: Hashable, why: str, redriven: Redriven | None = None, *, for_good: bool = False
    ) -> None:
        super().__init__(key, why, keys=None if redriven is None else redriven.keys)
        self.redriven = redriven
        self.for_good = for_good


class Unread(LeftAlone):
    """A record of a dead-letter topic that gives no sub-messages.

    It is the only unit of the record. If the letter's original was still there in an earlier run,
    this unit stands for all sub-messages that the earlier run left.
    """

    __slots__ = ()

    def take_place(self, message: Message) -> KeySums:
        """Become the only sub-message of a message; return a count and checksum of its sub-keys."""
        self.message = message
        self.index = 0
        return KeySums(1, 0)


def only_in(times: TimeRange, split: Split | None, message: Message) -> Iterable[SubMessage]:
    """Split a message if its time is in the range, or else return a unit that is left alone."""
    if (why := times.why_outside(message.timestamp)) is not None:
        return [LeftAlone(message.offset, why, for_good=True)]
    return [SubMessage(message.key, message.value)] if split is None else split(message)


class Redriven(SubMessage):
    """A dead letter on its way through a drain. ``original`` is what the handler gets.

    It keeps the ``id`` that it had when it was given up, so that a handler that stores the id still
    has its effect exactly once. A barrier has no sub-key, and the sub-messages that it separated
    are no longer there. So it gets a lane of its own, and the ``lanes`` of everything that was in
    the same message.
    """

    __slots__ = ("letter", "original")

    def __init__(
        self, letter: Letter, original: SubMessage, lanes: Sequence[Hashable] = ()
    ) -> None:
        key, keys = original.key, original.keys
        if isinstance(original, Barrier):
            key = "barrier", letter.id
            keys = (key, *lanes) if lanes else None
        elif keys is None:
            key = lane_of(original)  # Without a sub-key, the lane is that of the original.
        super().__init__(key, original.content, keys=keys)
        self.letter = letter
        self.original = original

    def begin(self) -> SubMessage:
        """Return what the handler gets at the next attempt."""
        self.original.attempt = self.letter.attempts + self.attempt
        return self.original


def _parts_of(
    settings: RedriveSettings, letter: Letter, split: Split | None, decode: Split | None
) -> list[SubMessage]:
    """Make the sub-messages of a letter. There are none if ``split`` now makes other ones."""
    message, subs = letter.message(), list[SubMessage]()
    raw = letter.payload_encoding is Encoding.RAW
    made = letter.payload_encoding is Encoding.ORIGINAL
    if made or letter.is_message:
        subs += [SubMessage(message.key, message.value)] if split is None else split(message)
    elif raw and decode is not None:
        subs += decode(message)
    parts, _ = identify_or_reject(message, subs)
    if parts and isinstance(unit := parts[0], Unsplit):
        unit.letter = letter
        return [unit]
    if settings.to is not None and parts:  # It is written to a topic as it is.
        return [Redriven(letter, parts[0])]
    if made:
        same = (sub for sub in parts[letter.index :][:1] if letter.is_of(sub, message))
        return [Redriven(letter.of_part(sub, message), sub) for sub in same]
    if not letter.is_message:
        sub = letter.sub_message()
        sub.message, sub.index = message, letter.index
        sub.content = message.meaning if raw else sub.content
        return [Redriven(letter, sub)]
    lanes = [(lane_of(sub),) if sub.keys is None else sub.keys for sub in parts]
    every = list(chain.from_iterable(lanes))
    return [
        Redriven(letter.of_part(sub, message), sub, every if isinstance(sub, Barrier) else ())
        for sub in parts
    ]


def selects(sub: SubMessage) -> bool:
    """Return whether a redrive finishes a sub-message in this run, handled or skipped for good."""
    return not isinstance(sub, LeftAlone) or sub.for_good
