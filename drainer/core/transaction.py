"""An open transaction as the end of a backlog: what stands behind it is shown to no one yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from drainer.core.listed import listed


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What open transactions keep from whoever reads committed records only.

    Attributes:
        topic: its name.
        partition: its number.
        offset: the last stable offset, at which the first record of an open transaction stands.
        offsets: how many there are from there on, of whatever producer.
        since_ms: the timestamp of that record, milliseconds since 1970; None when it has none.
    """

    topic: str
    partition: int
    offset: int
    offsets: int
    since_ms: int | None

    def __str__(self) -> str:
        since = "" if self.since_ms is None else f", open since {_moment(self.since_ms)}"
        return (
            f"{self.topic}/{self.partition} from offset {self.offset} on ({self.offsets:,}{since})"
        )


def told_of(held: Sequence[HeldBack]) -> str:
    """All of it in a sentence, with how to find the producer: a client is not told that."""
    count = sum(each.offsets for each in held)
    return (
        f"an open transaction holds back {count:,} offset{'' if count == 1 else 's'}, which are not"
        f" part of this backlog: {listed(held)}; kafka-transactions.sh describe-producers names the"
        " producer"
    )


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
