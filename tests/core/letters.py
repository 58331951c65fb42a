"""Dead letters to test with, as records of a dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drainer.core.failing.dead_letter import DeadLetter, Letter, dead_letter, read_letter
from drainer.message import Message, Origin, SubMessage

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
    time: str = TIME
    partition: int = 2
    sub: SubMessage | None = None

    def letter(self, former: Letter | None = None) -> DeadLetter:
        sub = self.sub if self.sub is not None else SubMessage(self.key, self.payload)
        if sub.message is None:
            origin = Origin("orders", "0pBNPmLQTQ6kMBJIlPOBWg", self.partition)
            headers = self.headers
            sub.message = Message(
                origin, 104, self.message_key, self.value, self.timestamp, headers
            )
            sub.index = 1
        return dead_letter(
            sub,
            reason=self.reason,
            error=self.error,
            attempts=3,
            handler=self.handler,
            drain_id="20260314-180212-9f3a1c",
            time=self.time,
            former=former,
        )


def as_record(letter: DeadLetter, offset: int = 17) -> Message:
    """The letter as it comes back from its topic."""
    return Message(DEAD, offset, letter.key, letter.value, 1, list(letter.headers))


def there_and_back(sample: Sample) -> Letter:
    return read_letter(as_record(sample.letter()))
