"""What of the finished work may be told without the messages that are finished in part."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import merge

from drainer.core.progress import Progress, Range

KEYS_MOST = 50_000  # sub-keys that are kept of finished messages; memory may not grow with them


class SubKeys(tuple[Hashable, ...]):
    """The sub-keys of one sub-message that has several; a sub-key may be a tuple itself."""

    __slots__ = ()


def closed(progress: Progress) -> tuple[Range, ...]:
    """The finished ranges that stand without the partial messages, when no sub-keys are known.

    Those before the first message that is finished in part.
    """
    return _below(progress.finished, min(progress.partial, default=None))


class Closure:
    """Finds the finished messages of one partition that whoever knows of whole ones may leave out.

    Who goes on without the plan handles a message again that was finished in part. If a later
    message with one of its finished sub-keys were left out then, that lane would see the earlier
    operation last. So such a message has to be handled again too, and whatever shares a sub-key
    with it, and so on. A plan needs none of this: it has the partial messages.

    Keeps the sub-keys of finished messages for which this is not decided, up to ``KEYS_MOST``; what
    is too much is left out, with all that comes behind it.
    """

    __slots__ = ("_count", "_cut", "_cut_until", "_noted", "watches")

    def __init__(self, earlier: Progress) -> None:
        self.watches = False  # whether some are finished in part, so that ``note`` is needed
        self._noted: list[tuple[int, Sequence[Hashable]]] = []
        self._count = 0
        self._cut: int | None = None  # nothing from here on is told
        self._cut_until = 0  # before the watermark is here
        if earlier.partial and earlier.finished:  # what finished behind these has unknown sub-keys
            self._cut = min(earlier.partial)
            self._cut_until = earlier.finished[-1][1]
            self.watches = True

    def note(self, offset: int, keys: Sequence[Hashable]) -> None:
        """A message has finished while an earlier one is pending."""
        self._count += len(keys)
        if self._count <= KEYS_MOST:
            self._noted.append((offset, keys))
        else:
            self._cut = offset if self._cut is None else min(self._cut, offset)
            self._cut_until = max(self._cut_until, offset + 1)

    def of(
        self,
        watermark: int,
        finished: Sequence[Range],
        partial: Iterable[tuple[int, Sequence[Hashable]]],
    ) -> tuple[Range, ...]:
        """The finished ranges above the watermark without those that have to be handled again.

        ``partial`` has the pending messages by rising offset, with those of their sub-keys that
        are finished.
        """
        if self._cut is not None and watermark >= self._cut_until:
            self._cut = None
        if self._noted or self.watches:
            finished = _without(finished, self._decide(watermark, partial))
        return _below(finished, self._cut)

    def _decide(
        self, watermark: int, partial: Iterable[tuple[int, Sequence[Hashable]]]
    ) -> list[int]:
        # Of those that are not held here, all that they depend on is finished as a whole, and stays
        # so: they are forgotten.
        cut = self._cut
        noted = sorted((each for each in self._noted if each[0] >= watermark), key=_offset)
        again = _Again()
        held: list[tuple[int, Sequence[Hashable]]] = []
        in_part = False
        for offset, keys, whole in merge(
            ((offset, keys, True) for offset, keys in noted),
            ((offset, keys, False) for offset, keys in partial if keys),
            key=_offset,
        ):
            if cut is not None and offset >= cut:
                if whole:
                    held.append((offset, keys))
            elif not whole:
                in_part = True
                again.add(keys)
            elif again.touches(keys):
                held.append((offset, keys))
                again.add(keys)
        self._noted = held
        self._count = sum(len(keys) for _, keys in held)
        self.watches = in_part or bool(held) or cut is not None
        return [offset for offset, _ in held]


class _Again:
    """Sub-keys of sub-messages that will be handled again."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()

    def add(self, keys: Sequence[Hashable]) -> None:
        for key in keys:
            if isinstance(key, SubKeys):
                self._keys.update(key)
            else:
                self._keys.add(key)

    def touches(self, keys: Sequence[Hashable]) -> bool:
        known = self._keys
        if not known:
            return False
        if None in known:  # a barrier has no other sub-key, and all behind it depends on it
            return True
        return any(
            not known.isdisjoint(key) if isinstance(key, SubKeys) else key in known for key in keys
        )


def _offset(entry: tuple[int, ...] | tuple[int, object] | tuple[int, object, bool]) -> int:
    return entry[0]


def _below(ranges: Sequence[Range], cut: int | None) -> tuple[Range, ...]:
    if cut is None:
        return tuple(ranges)
    return tuple((first, min(end, cut)) for first, end in ranges if first < cut)


def _without(ranges: Sequence[Range], offsets: Sequence[int]) -> list[Range]:
    # Both are sorted, and each of the offsets lies in one of the ranges.
    if not offsets:
        return list(ranges)
    left: list[Range] = []
    rest = iter(offsets)
    leave_out = next(rest, None)
    for whole_first, end in ranges:
        first = whole_first
        while leave_out is not None and leave_out < end:
            if leave_out > first:
                left.append((first, leave_out))
            first = max(first, leave_out + 1)
            leave_out = next(rest, None)
        if first < end:
            left.append((first, end))
    return left
