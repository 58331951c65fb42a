"""A lane: the queue of one sub-key, and how a sub-message with several stands in each."""

from __future__ import annotations

from collections.abc import Hashable

from drainer.message import SubMessage

NOT_READY = -1


class Lane:
    """The queue of one sub-key. ``waiting`` counts what has not been started."""

    __slots__ = ("head", "hot", "key", "parked", "rank", "tail", "waiting")

    def __init__(self, key: Hashable, first: SubMessage | Place | None) -> None:
        self.key = key
        self.head: SubMessage | Place | None = first
        self.tail: SubMessage | Place | None = first
        self.waiting = 1
        self.rank = 0  # the bucket it is ready in, or NOT_READY while something runs or holds it
        self.hot = False
        self.parked = False  # then nothing of it is kept: it has no head, and never gets one


class Place:
    """Where a sub-message with several sub-keys stands in one of its lanes."""

    __slots__ = ("next", "turn")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.next: SubMessage | Place | None = None


class Turn:
    """The lanes of a sub-message with several sub-keys; its turn comes when it heads them all."""

    __slots__ = ("behind", "lanes", "sub")

    def __init__(self, sub: SubMessage, behind: int) -> None:
        self.sub = sub
        self.behind = behind  # lanes in which it is not first yet
        self.lanes: list[Lane] = []
