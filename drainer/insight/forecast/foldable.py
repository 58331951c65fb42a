"""Which sub-messages of a sample a handler's ``coalesce`` folds, asked about as they lie there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from drainer.core.bundles import FOLD_MOST, Coalesce, fold
from drainer.message import Barrier, Message, SubMessage


class Foldable:
    """Asks ``coalesce`` about each sub-message and what is before it in the lane of its sub-key.

    As in a drain whose lanes are so long that a call is offered as much as it may take.
    """

    def __init__(self, coalesce: Coalesce) -> None:
        self._coalesce = coalesce
        # By sub-key: the operation so far, the first sub-message in it, and how many they are.
        self._ends: dict[Hashable, tuple[SubMessage, SubMessage, int]] = {}
        self.asked = 0

    def bits(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """The bits of those that are folded. Raises HandleFailed when ``coalesce`` fails."""
        found = 0
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier) or sub.keys is not None:
                continue
            sub.message, sub.index = message, index
            before = self._ends.get(sub.key)
            into = None
            if before is not None and before[2] < FOLD_MOST:
                self.asked += 1
                into = fold(self._coalesce, before[0], sub, before[1])
            if into is None or before is None:
                self._ends[sub.key] = (sub, sub, 1)
                continue
            if into.message is None:
                into.message, into.index = message, index
            found |= 1 << index
            self._ends[sub.key] = (into, before[1], before[2] + 1)
        return found
