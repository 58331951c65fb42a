"""Lanes: one queue per sub-key, of which one sub-message runs at a time, the hottest lane first.

With C workers, total work W and the longest lane L, nothing beats max(W/C, L), and taking the
longest lane first comes close to it (list scheduling, Graham 1969). Ready lanes are kept in buckets
by the number of sub-messages that wait in them, rounded down to a power of two. So the next lane is
found in O(1), amortised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import nlargest
from typing import Any, cast

from drainer.message import Message, SubMessage

# The live view names only lanes in which at least this many sub-messages have waited at once.
HOT_WAITING = 64
# Once this many lanes are ready, the pump reads no further. More ready lanes would give no better
# schedule (with one per worker, a drain takes 1.004 times max(W/C, L) at worst), and they would
# outgrow the processor's caches.
LOOK_AHEAD_PER_WORKER = 2
LOOK_AHEAD_MIN = 1_000
# When a lane grows, it may leave a stale entry behind in a bucket. All stale entries are cleared
# together, once there may be more of them than twice the number of lanes plus STALE_MIN.
STALE_MIN = 64

# Most lanes only ever have one sub-message. It stands for its lane by itself until a second one
# comes. Until then, its ``lane`` is one of these.
ALONE_READY = "alone, ready"
ALONE_RUNNING = "alone, running"

NOT_READY = -1  # The rank of a lane that is not ready.


def look_ahead(concurrency: int) -> int:
    """Return the number of ready lanes at which it is not worth reading on."""
    return max(LOOK_AHEAD_MIN, LOOK_AHEAD_PER_WORKER * concurrency)


class Lane:
    """The queue of one sub-key. ``waiting`` counts the sub-messages that were not started."""

    __slots__ = ("head", "hot", "key", "parked", "rank", "tail", "waiting")

    def __init__(self, key: Hashable, first: SubMessage | Slot | None) -> None:
        self.key = key
        self.head: SubMessage | Slot | None = first
        self.tail: SubMessage | Slot | None = first
        self.waiting = 1
        # The bucket in which it is ready, or NOT_READY while something runs or is delayed.
        self.rank = 0
        self.hot = False
        self.parked = False  # A parked lane keeps nothing: it never gets a head.


class Slot:
    """The place that a sub-message with several sub-keys has in one of its lanes."""

    __slots__ = ("entry", "next")

    def __init__(self, entry: MultiKeyEntry) -> None:
        self.entry = entry
        self.next: SubMessage | Slot | None = None


class MultiKeyEntry:
    """A sub-message with several sub-keys, and its lanes. It is ready when it heads all of them."""

    __slots__ = ("lanes", "lanes_ahead", "sub")

    def __init__(self, sub: SubMessage, lanes_ahead: int) -> None:
        self.sub = sub
        self.lanes_ahead = lanes_ahead  # The number of lanes that it does not head yet.
        self.lanes: list[Lane] = []


class Lanes:
    """All lanes that have work, and the choice of the one that a free worker should take.

    ``leave`` is called with each sub-message that stays pending because its lane is parked. Lanes
    are parked from the start if the ``repr`` of their key is in ``parked``.
    """

    def __init__(
        self,
        leave: Callable[[SubMessage], None] = lambda sub: None,
        parked: AbstractSet[str] = frozenset(),
    ) -> None:
        self._leave = leave
        self._parked_before = parked
        self._lanes: dict[Hashable, Lane | SubMessage] = {}
        self._buckets: list[deque[Lane | SubMessage]] = [deque()]
        self._filled = 0  # Bit r is set when bucket r may hold a lane.
        self._promotions = 0  # Each of them leaves a stale entry behind in a lower bucket.
        # Sub-messages that are ready and go before all lanes: barriers, those with several
        # sub-keys, and those that are tried again.
        self._urgent: deque[SubMessage] = deque()
        self._hot: dict[Lane, None] = {}
        self.ready = 0
        self.running = 0  # Sub-messages in the handler.
        # Sub-messages that were started and are not finished, but that no worker has now.
        self.delayed = 0
        self.parked = 0  # The number of parked lanes, and of partitions parked behind a barrier.
        self._empty = 0  # Lanes that are kept only because they are parked.

    def __len__(self) -> int:
        """Return the number of lanes that have something waiting or running."""
        return len(self._lanes) - self._empty

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys of the lanes that have something waiting or running, or are parked."""
        return self._lanes.keys()

    def push(self, sub: SubMessage, key: Hashable) -> None:
        """Put a sub-message at the end of the lane of ``key``.

        Raises TypeError when the key is not hashable, in which case nothing has changed.
        """
        sub.next = None
        lane = self._lanes.get(key)
        if lane is None:
            if self._parked_before and repr(key) in self._parked_before:
                self._park(key)
                self._leave(sub)
                return
            self._lanes[key] = sub
            sub.lane = ALONE_READY
            sub.lane_key = key
            self._buckets[0].append(sub)
            self._filled |= 1
            self.ready += 1
            return
        if isinstance(lane, SubMessage):
            lane = self._widen(lane)
        sub.lane = lane
        self._append(lane, sub)

    def push_each(self, subs: Sequence[SubMessage]) -> None:
        """Push many sub-messages, each into the lane of its own sub-key."""
        lanes, ready = self._lanes, self._buckets[0]
        started = 0
        for sub in subs:
            key = sub.key
            if key in lanes or self._parked_before:
                self.push(sub, key)
                ready = self._buckets[0]  # The call may have cleared the bucket.
                continue
            started += 1
            lanes[key] = sub
            sub.next = None
            sub.lane = ALONE_READY
            sub.lane_key = key
            ready.append(sub)
        self.ready += started
        self._filled |= 1

    def push_to_all(self, sub: SubMessage, keys: Iterable[Hashable]) -> None:
        """Give a sub-message a place in several lanes. It runs when it heads all of them."""
        distinct = list(dict.fromkeys(keys))
        sub.lane = entry = MultiKeyEntry(sub, len(distinct))
        for key in distinct:
            slot = Slot(entry)
            lane = self._lanes.get(key)
            if lane is None and self._parked_before and repr(key) in self._parked_before:
                lane = self._park(key)
            if lane is None:
                lane = self._lanes[key] = Lane(key, slot)
                entry.lanes.append(lane)
                self._advance(lane)
                continue
            if isinstance(lane, SubMessage):
                lane = self._widen(lane)
            entry.lanes.append(lane)
            self._append(lane, slot)

    def push_alone(self, sub: SubMessage) -> None:
        """Make a sub-message ready that stands in no lane: a barrier whose turn has come."""
        sub.lane = None
        self._urgent.append(sub)
        self.ready += 1

    def start_alone(self, sub: SubMessage) -> None:
        """Start a sub-message that stands in no lane and goes to no worker."""
        sub.lane = None
        self.running += 1

    def take(self) -> SubMessage | None:
        """Start the next sub-message of the hottest ready lane, and return it.

        The hottest lane is one in which nearly the most sub-messages wait. Returns None when
        nothing is ready.
        """
        if self._urgent:
            self.ready -= 1
            self.running += 1
            return self._urgent.popleft()
        while self._filled:
            rank = self._filled.bit_length() - 1
            bucket = self._buckets[rank]
            while bucket:
                lane = bucket.popleft()
                if isinstance(lane, Lane):
                    if lane.rank == rank:
                        lane.rank = NOT_READY
                        self.ready -= 1
                        self.running += 1
                        return self._start(lane)
                elif lane.lane is ALONE_READY:
                    lane.lane = ALONE_RUNNING
                    self.ready -= 1
                    self.running += 1
                    return lane
            self._filled ^= 1 << rank
        return None

    def finish(self, sub: SubMessage) -> None:
        """Finish a started sub-message, so that what is behind it in its lanes may become ready."""
        self.running -= 1
        lane = sub.lane
        if lane is ALONE_RUNNING:
            del self._lanes[sub.lane_key]
        elif type(lane) is Lane:
            self._advance(lane)
        elif lane is not None:
            sub.lane = None  # A reference cycle would keep both in memory.
            for each in lane.lanes:
                self._advance(each)

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        """Finish a sub-message and take the next one, from the same lane while it is the hottest.

        Returns None when nothing is ready.
        """
        lane = sub.lane
        if lane is ALONE_RUNNING:
            del self._lanes[sub.lane_key]
            self.running -= 1
        elif type(lane) is Lane:
            head = lane.head
            if head is None:
                self._remove(lane)
            elif (
                type(head) is not Slot
                and not self._urgent
                and lane.waiting.bit_length() >= self._filled.bit_length()
            ):
                return self._start(lane)
            else:
                self._advance(lane)
            self.running -= 1
        else:
            self.finish(sub)
        return self.take()

    @property
    def urgent(self) -> SubMessage | None:
        """The next sub-message that goes before all lanes, such as one that is tried again."""
        return self._urgent[0] if self._urgent else None

    @property
    def urgent_ones(self) -> int:
        """The number of ready sub-messages that go before all lanes."""
        return len(self._urgent)

    def next_in_lane(self, sub: SubMessage) -> SubMessage | None:
        """Return the next sub-message in the lane of a started one.

        Returns None if there is none, or if it stands in other lanes as well.
        """
        lane = sub.lane
        head = lane.head if type(lane) is Lane else None
        return None if type(head) is Slot else cast("SubMessage | None", head)

    def take_next_in_lane(self, sub: SubMessage) -> SubMessage:
        """Start the sub-message behind ``sub`` in its lane, to be handled in the same call.

        There must be one (see ``next_in_lane``). The lane goes on when ``sub`` finishes, so
        ``sub`` must be finished last.
        """
        follower = self._start(sub.lane)
        follower.lane = None
        self.running += 1
        return follower

    def hand_over(self, sub: SubMessage, follower: SubMessage) -> None:
        """Make a lane wait for a follower that was taken from it, and no longer for ``sub``."""
        follower.lane, sub.lane = sub.lane, None

    def put_behind(self, sub: SubMessage, followers: Sequence[SubMessage]) -> None:
        """Give back, in their order, the followers that were taken from behind a sub-message."""
        lane = sub.lane
        for follower in reversed(followers):
            follower.lane = lane
            follower.next = lane.head
            lane.head = follower
            if lane.tail is None:
                lane.tail = follower
        lane.waiting += len(followers)
        self.running -= len(followers)

    def delay(self, sub: SubMessage) -> None:
        """Note that a started sub-message has left its worker unfinished. Its lanes wait for it."""
        self.running -= 1
        self.delayed += 1

    def resume(self, sub: SubMessage) -> None:
        """Note that a delayed sub-message is in the handler again, or is about to finish."""
        self.delayed -= 1
        self.running += 1

    def release(self, sub: SubMessage) -> None:
        """Make a delayed sub-message ready for its next attempt, before all others."""
        self.delayed -= 1
        self._urgent.append(sub)
        self.ready += 1

    def park(self, sub: SubMessage) -> tuple[Hashable, ...]:
        """Park the lanes of a started sub-message, finished or not, and return their keys.

        What waits in these lanes, and what comes later, is let go of and stays pending. A
        sub-message with several sub-keys that stands in one of them never becomes ready, nor does
        anything behind it.
        """
        self.running -= 1
        lane = sub.lane
        if lane is ALONE_RUNNING:
            return (self._park(sub.lane_key).key,)
        if type(lane) is Lane:
            return (self._park(lane.key).key,)
        if lane is None:  # It is a barrier, and its whole partition is behind it.
            self.parked += 1
            return ()
        sub.lane = None
        return tuple(self._park(each.key).key for each in lane.lanes)

    def hottest(self, most: int) -> list[tuple[Hashable, int]]:
        """Return the hottest lanes, each as its sub-key and the number that wait in it.

        Only lanes that have reached HOT_WAITING are looked at.
        """
        lanes = nlargest(most, self._hot, key=lambda lane: lane.waiting)
        return [(lane.key, lane.waiting) for lane in lanes if lane.waiting]

    @property
    def longest(self) -> int:
        """The number of sub-messages in the longest lane, with the one that runs.

        All lanes are looked at, so this is asked only when few are left.
        """
        lanes = (each for each in self._lanes.values() if type(each) is Lane)
        lengths = (lane.waiting + (lane.rank == NOT_READY) for lane in lanes)
        return max(lengths, default=min(1, len(self)))

    def place_of(
        self, message: Message, keys: Iterable[Hashable] | None
    ) -> tuple[Hashable, int] | None:
        """Return the lane in which a message waits longest, and how many come before it there.

        ``keys`` are the keys of its unfinished sub-messages. If they are not known, None stands for
        all lanes, but a lane is found only while something of the message waits in it. Whatever
        runs in a lane comes before what waits there. Returns None if no lane is found.
        """
        found: dict[Hashable, int] = {}
        for key in dict.fromkeys(self._lanes if keys is None else keys):
            lane = self._lanes.get(key)
            if isinstance(lane, SubMessage):
                if lane.message is message:
                    found[key] = 0
            elif lane is not None and not lane.parked:
                waiting = _waiting_up_to(lane, message)
                if waiting:
                    found[key] = waiting - 1 + (lane.rank == NOT_READY)
                elif keys is not None:
                    found[key] = 0
        return max(found.items(), key=lambda each: each[1], default=None)

    def _park(self, key: Hashable) -> Lane:
        lane = self._lanes.get(key)
        if type(lane) is not Lane:
            lane = self._lanes[key] = Lane(key, None)
        self.parked += 1
        self._empty += 1
        node: Any = lane.head
        lane.head = lane.tail = None
        lane.waiting = 0
        lane.rank = NOT_READY
        lane.parked = True
        while node is not None:
            behind, node.next = node.next, None
            if type(node) is not Slot:
                node.lane = None
                self._leave(node)
            node = behind
        return lane

    def _widen(self, sub: SubMessage) -> Lane:
        # Make a queue for a sub-message that stood for its lane by itself.
        lane = self._lanes[sub.lane_key] = Lane(sub.lane_key, sub)
        if sub.lane is ALONE_RUNNING:
            lane.head = lane.tail = None
            lane.waiting = 0
            lane.rank = NOT_READY
        sub.lane = lane
        return lane

    def _append(self, lane: Lane, node: SubMessage | Slot) -> None:
        if lane.head is None:
            if lane.parked:
                if type(node) is not Slot:
                    self._leave(cast(SubMessage, node))
                return
            lane.head = lane.tail = node
            lane.waiting = 1
            return
        tail: Any = lane.tail
        tail.next = node
        lane.tail = node
        waiting = lane.waiting = lane.waiting + 1
        if not waiting & (waiting - 1):
            self._grown(lane, waiting)

    def _grown(self, lane: Lane, waiting: int) -> None:
        if waiting >= HOT_WAITING and not lane.hot:
            lane.hot = True
            self._hot[lane] = None
        if lane.rank >= 0:
            self._enlist(lane)
            self._promotions += 1
            if self._promotions > STALE_MIN + 2 * len(self._lanes):
                self._clear_stale()

    def _enlist(self, lane: Lane) -> None:
        rank = lane.rank = lane.waiting.bit_length() - 1
        while rank >= len(self._buckets):
            self._buckets.append(deque())
        self._buckets[rank].append(lane)
        self._filled |= 1 << rank

    def _clear_stale(self) -> None:
        # Lower buckets may never be reached. Without this, they would grow with the backlog.
        self._promotions = 0
        for rank, bucket in enumerate(self._buckets):
            live = (
                entry
                for entry in bucket
                if (entry.rank == rank if isinstance(entry, Lane) else entry.lane is ALONE_READY)
            )
            self._buckets[rank] = deque({id(entry): entry for entry in live}.values())

    def _start(self, lane: Lane) -> SubMessage:
        sub: Any = lane.head
        behind = lane.head = sub.next
        if behind is None:
            lane.tail = None  # Otherwise, lane and sub-message would form a reference cycle.
        else:
            sub.next = None
        lane.waiting -= 1
        started: SubMessage = sub
        return started

    def _advance(self, lane: Lane) -> None:
        head = lane.head
        if head is None:
            self._remove(lane)
        elif type(head) is Slot:
            lane.rank = NOT_READY
            lane.head = head.next
            if lane.head is None:
                lane.tail = None
            lane.waiting -= 1
            entry = head.entry
            entry.lanes_ahead -= 1
            if not entry.lanes_ahead:
                self._urgent.append(entry.sub)
                self.ready += 1
        else:
            self._enlist(lane)
            self.ready += 1

    def _remove(self, lane: Lane) -> None:
        lane.rank = NOT_READY
        del self._lanes[lane.key]
        if lane.hot:
            del self._hot[lane]


def _waiting_up_to(lane: Lane, message: Message) -> int:
    """Return the place of the last sub-message of a message that waits in a lane, from 1.

    The message must be the first unfinished one of its partition. Returns 0 if nothing of it waits.
    """
    place, last = 0, 0
    node: Any = lane.head
    while node is not None:
        place += 1
        other = (node.entry.sub if type(node) is Slot else node).message
        if other is message:
            last = place
        elif other.ledger is message.ledger:  # Nothing of the message is behind a later one.
            break
        node = node.next
    return last
