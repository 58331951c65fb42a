"""Dead letters to test with, as records of a dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from hypothesis import strategies as st

from builders import a_plan
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.policy.dead_letter import DeadLetter, Letter, dead_letter, read_letter

DEAD = Origin("orders.indexer.dead", "dead-id", 3)
TIME = "2026-03-14T18:02:12.104+00:00"


@dataclass(frozen=True)
class Sample:
    """A sub-message that was given up on; ``sub`` may be changed before its letter is made."""

    key: Any = "doc-17"
    payload: Any = None
    value: bytes | None = b"the value"
    message_key: bytes | None = b"customer"
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = 1_700_000_000_000
    error: BaseException | None = field(default_factory=lambda: ValueError("no such document"))
    reason: str = "failed"
    handler: str = "shop:Reindex"
    group: str = "indexer"
    topic: str = "orders"
    time: str = TIME
    partition: int = 2
    attempts: int = 3
    sub: SubMessage | None = None

    def letter(self, former: Letter | None = None) -> DeadLetter:
        sub = self.sub if self.sub is not None else SubMessage(self.key, self.payload)
        if sub.message is None:
            origin = Origin(self.topic, "0pBNPmLQTQ6kMBJIlPOBWg", self.partition)
            headers = self.headers
            sub.message = Message(
                origin, 104, self.message_key, self.value, self.timestamp, headers
            )
            sub.index = 1
        return dead_letter(
            sub,
            reason=self.reason,
            error=self.error,
            attempts=self.attempts,
            terms=a_plan(
                group=self.group, handler=self.handler, drain_id="20260314-180212-9f3a1c"
            ).terms,
            time=self.time,
            former=former,
        )


def as_record(letter: DeadLetter, offset: int = 17) -> Message:
    """The letter as it comes back from its topic."""
    return Message(DEAD, offset, letter.key, letter.value, 1, list(letter.headers))


def there_and_back(sample: Sample) -> Letter:
    return read_letter(as_record(sample.letter()))


_BASES = [
    Sample(payload={"a": 1}, headers=[("trace", b"1")]),
    Sample("half \ud800", b"raw", value=b"raw"),
    Sample(sub=SubMessage(keys=["a", ("b", 2)], payload=("literal",))),
    Sample(sub=Barrier("drop"), error=None, timestamp=None),
]
_NASTY: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, "", "0", -1, 1.5, 2**63 - 1, 10**30, True, [], {}),
        *("'\\ud800'", "()", "{'a'}", "['a']", "('a', 'a')", "1e999", "-" * 9000 + "1"),
        *("(" * 3000, "open('f')", "literal", "json", "repr", "left-out", "barrier"),
        *("9999-12-31T23:59:59+00:00", "\n\u202e", "[" * 9000),
    ]
)


@st.composite
def mutated_letters(draw: st.DrawFn) -> Message:
    """Records that are dead letters but for a few fields, or a value, that somebody made up."""
    letter = draw(st.sampled_from(_BASES)).letter()
    reported, value = orjson.loads(letter.headers[0][1] or b""), letter.value
    for _ in range(draw(st.integers(1, 3))):
        field = draw(st.sampled_from(sorted(reported)))
        match draw(st.sampled_from(["change", "change", "change", "drop", "value"])):
            case "change":
                reported[field] = draw(_NASTY | st.text(max_size=20) | st.integers())
            case "drop":
                reported.pop(field)
            case _:
                value = draw(st.binary(max_size=20) | st.none())
    header = draw(st.just(msgspec.json.encode(reported)) | st.none() | st.binary(max_size=20))
    headers = [(letter.headers[0][0], header), *letter.headers[1:]]
    return Message(DEAD, 17, letter.key, value, 1, headers)
