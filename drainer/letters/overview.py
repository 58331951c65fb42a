"""The overview of a dead-letter topic, and single letters, both as JSON."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from heapq import heappush, heappushpop
from typing import Any

from drainer.errors import NotADeadLetter
from drainer.letters.reading import SubMessageCount
from drainer.letters.receipts import read_receipt
from drainer.message import Message
from drainer.model.status import least_of
from drainer.model.terms import LetterFilter
from drainer.policy.dead_letter import Letter, Provenance, ReadLetter, read_letter
from drainer.policy.exact_json import Encoding

HOTTEST = 10
_COUNTED = ("letters", "redriven", "outstanding", "matching", "foreign")
TALLIED = 50_000  # At least this many different errors, reasons or sub-keys are counted.


@dataclass(frozen=True, slots=True)
class Overview:
    """What a dead-letter topic contains.

    Attributes:
        letters: the number of dead letters.
        redriven: the number of letters that a redrive has finished. The others are outstanding.
        given_up: counts the sub-messages of the outstanding letters.
        matching: the number of letters that match the filters. All further fields are about these.
        foreign: the number of records that are damaged, or neither dead letters nor receipts.
        counts: the most frequent values of ``error`` (its type, or ``no error``), of ``reason`` and
            of ``sub_key``, with their counts.
        newest: the newest letters without payload and headers, and whether each was redriven.
        left_out: by topic, the number of letters without payload, and the earliest timestamp of
            their messages. A redrive reads these messages again.
    """

    topic: str
    letters: int
    redriven: int
    given_up: SubMessageCount
    matching: int
    foreign: int
    counts: Mapping[str, Mapping[str, int]]
    newest: tuple[tuple[Letter, bool], ...]
    left_out: Mapping[str, tuple[int, int | None]]

    @property
    def outstanding(self) -> int:
        return self.letters - self.redriven

    @property
    def is_foreign(self) -> bool:
        """Whether the topic has records, and not one that is a dead letter."""
        return bool(self.foreign) and not self.letters

    def as_json(self) -> dict[str, Any]:
        return {
            "dead_letter_topic": self.topic,
            **{name: getattr(self, name) for name in _COUNTED},
            "outstanding_sub_messages": self.given_up.sub_messages,
            "left_out": {topic: count for topic, (count, _) in self.left_out.items()},
            **{f"by_{what}": counts for what, counts in self.counts.items()},
            "newest": [
                {**letter_as_json(letter), "redriven": redriven} for letter, redriven in self.newest
            ],
        }


def overview_of(
    topic: str,
    records: Iterable[tuple[Message, bool]],
    wanted: LetterFilter,
    limit: int,
    *,
    all_: bool = False,
    read: ReadLetter = read_letter,
) -> Overview:
    """Make an overview of the records of a dead-letter topic, in bounded memory.

    If there are more than TALLIED different errors or sub-keys, the counts of rare ones may be too
    low.

    Args:
        records: each record of the topic, and whether a redrive has finished it.
        limit: how many letters the list has.
        all_: whether letters that were redriven count and are listed, too.
    """
    letters = redriven = matching = foreign = 0
    given_up = SubMessageCount()
    counts: dict[str, Counter[str]] = {what: Counter() for what in ("error", "reason", "sub_key")}
    newest: list[tuple[str, int, int, Letter, bool]] = []
    left_out: dict[str, tuple[int, int | None]] = {}
    for message, is_redriven in records:
        try:
            letter = read(message)
        except NotADeadLetter:
            foreign += read_receipt(message) is None
            continue
        letters += 1
        redriven += is_redriven
        if not is_redriven:
            given_up.add(letter)
        if (is_redriven and not all_) or not letter.matches(wanted):
            continue
        matching += 1
        if letter.lacks_message:
            topic_ = letter.topic if letter.topic in left_out or len(left_out) < HOTTEST else "…"
            count, oldest_ms = left_out.get(topic_, (0, None))
            left_out[topic_] = count + 1, least_of((oldest_ms, letter.timestamp))
        letter = letter.masked()
        counts["error"][letter.error_type or "no error"] += 1
        counts["reason"][letter.reason] += 1
        counts["sub_key"].update(letter.key_texts)
        for what, each in counts.items():
            if len(each) > 2 * TALLIED:
                counts[what] = Counter(dict(each.most_common(TALLIED)))
        light = replace(letter, payload=None, headers=())
        entry = (letter.time, letter.partition, letter.offset, light, is_redriven)
        if len(newest) < limit:
            heappush(newest, entry)
        elif limit:
            heappushpop(newest, entry)
    return Overview(
        topic,
        letters,
        redriven,
        given_up,
        matching,
        foreign,
        {what: dict(each.most_common(HOTTEST)) for what, each in counts.items()},
        tuple(entry[3:] for entry in sorted(newest, reverse=True)),
        left_out,
    )


_SHOWN_OTHERWISE = {"sub_key", "several", "message_key", "timestamp"}


def letter_as_json(letter: Letter) -> dict[str, Any]:
    """Return a letter as JSON, without the payload and without the parts of its message."""
    shown = [each.name for each in fields(Provenance) if each.name not in _SHOWN_OTHERWISE]
    return {
        **{name: getattr(letter, name) for name in ("partition", "offset", "id", *shown)},
        "sub_keys": letter.key_texts,
        "why_not_redriven": letter.why_not_redriven,
    }


def whole_letter_as_json(letter: Letter) -> dict[str, Any]:
    """Return a letter as JSON, with the payload, and the key, time and headers of its message."""
    is_literal = letter.payload_encoding in (Encoding.TYPED, Encoding.LITERAL)
    return {
        **letter_as_json(letter),
        "payload": repr(letter.payload) if is_literal else _as_json(letter.payload),
        "message": {
            "key": _as_json(letter.message_key),
            "timestamp": letter.timestamp,
            "headers": [(name, _as_json(value)) for name, value in letter.headers],
        },
    }


def _as_json(value: Any) -> Any:
    # Bytes become text if possible, because people read this.
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
