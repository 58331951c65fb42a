"""A message of which some sub-messages are finished and some are not, while it is pending."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from drainer.core.progress import DONE, Partial, checksum_keys
from drainer.errors import SplitFailed
from drainer.message import Message


class PartialMessage:
    """Which sub-messages of a message are finished, while some are and some are not.

    It has the face of a ``Partial`` and changes under whoever holds it: making an immutable one of
    each, every time that the journal asks, would cost a tenth of the drain's speed.
    """

    __slots__ = (
        "_checksum",
        "_head",
        "bits",
        "changed",
        "elsewhere",
        "fate",
        "keys",
        "resting",
    )

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys
        self.bits = 0
        self.elsewhere = 0  # not to be finished here, and in none of the records
        self.changed = False  # since the journal last asked
        self.fate = DONE  # the worst of those that are finished
        self.resting = 0  # pending, and not to be handled in this run
        self._checksum: int | None = None  # of most messages nobody asks for it
        self._head: str | None = None

    def record(self) -> Partial:
        if self._checksum is None:
            self._checksum = checksum_keys(self.keys)
        return Partial(len(self.keys), self._checksum, self.bits)

    def encode(self) -> str:
        head = self._head
        if head is None:
            head = self._head = self.record().head
        return f"{head}{self.bits:x}"


def insist_same(message: Message, known: Partial, keys: Sequence[Hashable]) -> None:
    """Raises SplitFailed when these sub-keys are not those that a record of the message has."""
    count, checksum = len(keys), checksum_keys(keys)
    if (known.count, known.checksum) != (count, checksum):
        raise SplitFailed(
            f"split is not deterministic: {message} gave {known.count} sub-messages (checksum"
            f" {known.checksum:08x}) before and gives {count} ({checksum:08x}) now",
            hint="split must depend on the message alone; see docs/correctness.md",
        )
