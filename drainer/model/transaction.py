"""An open transaction as the end of a backlog: what stands behind it is shown to no one yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drainer.model.listed import listed


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Records behind an open transaction, which no reader of committed records gets."""

    topic: str
    partition: int
    offset: int  # the last stable offset, at which the first record of an open transaction stands
    offsets: int  # how many there are from there on, of whatever producer

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from offset {self.offset} on ({self.offsets:,})"


def describe_open_transactions(held: Sequence[OpenTransaction]) -> str:
    """All of it in a sentence, with how to find the producer: no client can find it."""
    count = sum(each.offsets for each in held)
    return (
        f"an open transaction holds back {count:,} offset{'' if count == 1 else 's'}, which are not"
        f" part of this backlog: {listed(held)}. To find its producer, run kafka-transactions.sh"
        " describe-producers"
    )
