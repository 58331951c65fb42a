"""Lanes: one queue per sub-key, of which one sub-message runs at a time, and which one is next.

With C calls at once, total work W and the longest lane L, nothing beats max(W/C, L). Only a lane
that is critical must run at once for that: one with more than about half of (all waiting work) / C.
Among critical lanes the longest goes first. Everything else runs oldest message first, so that the
watermark follows the work (docs/explanation/proofs.md has the proof).

Two structures find the next lane in O(1), amortised. Both hold hints only, which are compared with
the state of the lane when they are taken out:

- The line has an entry for each waiting sub-message, in the order of delivery. If the lane of an
  entry is busy when its turn comes, the line passes it. When a lane becomes ready whose head was
  passed, it gets an entry at the front.
- Buckets have the ready lanes by the number of sub-messages that wait in them, rounded down to a
  power of two. Which of them are critical depends on the total, so no lane stores it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import nlargest
from itertools import chain
from typing import Any, ClassVar, cast

from drainer.message import Message, SubMessage

# The live view names only lanes in which at least this many sub-messages have waited at once.
HOT_WAITING = 64
# Once this many lanes are ready, the pump reads no further. More ready lanes would give no better
# schedule (with one per worker, a drain takes 1.004 times max(W/C, L) at worst), and they would
# outgrow the processor's caches.
LOOK_AHEAD_PER_WORKER = 2
LOOK_AHEAD_MIN = 1_000
# A lane is critical if more than this share of (all waiting work) / C waits in it. While something
# is unread, the lane may be longer than it looks.
CRITICAL_SHARE_UNREAD = 0.5
CRITICAL_SHARE_READ = 0.8
# Entries of the line and of the buckets become stale when a lane starts otherwise, or grows. They
# are all cleared together, once there may be more of them than STALE_MIN plus half of the line's
# length plus twice the number of lanes.
STALE_MIN = 64

# Most lanes only ever have one sub-message. It stands for its lane by itself until a second one
# comes. Until then, its ``lane`` is one of these.
ALONE_READY = "alone, ready"
ALONE_RUNNING = "alone, running"

UNRANKED = -1  # The rank of a lane that no bucket has.
NOT_HELD = -1
GONE = -1  # The ``lanes_ahead`` of a sub-message that has left the line, or can't become ready.


def look_ahead(concurrency: int) -> int:
    """Return the number of ready lanes at which it is not worth reading on."""
    return max(LOOK_AHEAD_MIN, LOOK_AHEAD_PER_WORKER * concurrency)


class Lane:
    """The queue of one sub-key.

    Attributes:
        waiting: the number of its sub-messages that were not started.
        unpassed: how many entries the line has for it. If more are waiting, its head was passed. If
            fewer are, the first of the entries are stale.
        ready: whether its head may start.
        rank: the bucket that has an entry for it, or UNRANKED.
        held: while a delayed sub-message holds it up, or a parked one for ever, the number of those
            behind; else NOT_HELD.
    """

    __slots__ = (
        *("head", "held", "hot", "key", "parked", "rank", "ready", "tail"),
        *("unpassed", "waiting"),
    )

    lane: ClassVar[None] = None  # Only an entry of the line that stands alone has another one.

    def __init__(self, key: Hashable, first: SubMessage | Slot | None, unpassed: int) -> None:
        self.key = key
        self.head: SubMessage | Slot | None = first
        self.tail: SubMessage | Slot | None = first
        self.waiting = 1
        self.unpassed = unpassed
        self.ready = False
        self.rank = UNRANKED
        self.held = NOT_HELD
        self.hot = False
        self.parked = False  # A parked lane keeps nothing: it never gets a head.


class Slot:
    """The place that a sub-message with several sub-keys has in one of its lanes."""

    __slots__ = ("entry", "next")

    def __init__(self, entry: MultiKeyEntry) -> None:
        self.entry = entry
        self.next: SubMessage | Slot | None = None


class MultiKeyEntry:
    """A sub-message with several sub-keys, and its lanes. It is ready when it heads all of them.

    Its turn comes as that of others, but if the line has passed it, or one of its lanes is
    critical, it goes before all lanes.
    """

    __slots__ = ("lanes", "lanes_ahead", "passed", "sub")

    lane: ClassVar[None] = None

    def __init__(self, sub: SubMessage, lanes_ahead: int) -> None:
        self.sub = sub
        self.lanes_ahead = lanes_ahead  # The number of lanes that it does not head yet, or GONE.
        self.lanes: list[Lane] = []
        self.passed = False


class Lanes:
    """All lanes that have work, and the choice of the one that a free worker should take.

    ``leave`` is called with each sub-message that stays pending because its lane is parked. Lanes
    are parked from the start if the ``repr`` of their key is in ``parked``.

    Attributes:
        workers: how many lanes may run at once: the calls that are granted now, times the lanes in
            a call.
        critical_share: see CRITICAL_SHARE_UNREAD.
    """

    def __init__(
        self,
        leave: Callable[[SubMessage], None] = lambda sub: None,
        parked: AbstractSet[str] = frozenset(),
    ) -> None:
        self._leave = leave
        self._parked_before = parked
        self._lanes: dict[Hashable, Lane | SubMessage] = {}
        self.workers = 1
        self.critical_share = CRITICAL_SHARE_UNREAD
        self._line: deque[SubMessage | Lane | MultiKeyEntry] = deque()
        self._buckets: list[deque[Lane]] = []
        self._filled = 0  # Bit r is set when bucket r may hold a lane.
        self._stale = 0  # An upper bound of the number of stale entries.
        # How many wait behind others, in lanes that are not held up. They and those that are ready
        # are all waiting work.
        self._behind = 0
        # Sub-messages that are ready and go before all lanes: barriers, those that are tried again,
        # and some with several sub-keys.
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
            self._line.append(sub)
            self.ready += 1
            return
        if isinstance(lane, SubMessage):
            lane = self._widen(lane)
        sub.lane = lane
        self._append(lane, sub)
        if lane.held == NOT_HELD:
            self._behind += 1
        else:
            lane.held += 1

    def push_each(self, subs: Sequence[SubMessage]) -> None:
        """Push many sub-messages, each into the lane of its own sub-key."""
        lanes, line = self._lanes, self._line
        started = 0
        for sub in subs:
            key = sub.key
            if key in lanes or self._parked_before:
                self.push(sub, key)
                continue
            started += 1
            lanes[key] = sub
            sub.next = None
            sub.lane = ALONE_READY
            sub.lane_key = key
            line.append(sub)
        self.ready += started

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
                lane = self._lanes[key] = Lane(key, slot, 0)
                entry.lanes.append(lane)
                self._pass_slot(lane, slot)
                continue
            if isinstance(lane, SubMessage):
                lane = self._widen(lane)
            entry.lanes.append(lane)
            self._append(lane, slot)
            if lane.parked:
                entry.lanes_ahead = GONE
        self._line.append(entry)
        if entry.lanes_ahead > 0:
            self._behind += 1
        elif not entry.lanes_ahead:
            self.ready += 1

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
        """Start the next sub-message, and return it; None when nothing is ready.

        It is that of the longest critical lane, or else the oldest that is ready.
        """
        if self._urgent:
            self.ready -= 1
            self.running += 1
            return self._urgent.popleft()
        filled = self._filled
        if filled and (1 << filled.bit_length()) * self.workers > self.critical_share * (
            self.ready + self._behind
        ):
            lane = self._pop_critical()
            if lane is not None:
                return self._start_ready(lane)
        line = self._line
        while line:
            entry = line.popleft()
            if entry.lane is ALONE_READY:
                entry.lane = ALONE_RUNNING
                self.ready -= 1
                self.running += 1
                return entry
            if type(entry) is Lane:
                unpassed = entry.unpassed = entry.unpassed - 1
                if entry.ready and entry.waiting > unpassed:
                    return self._start_ready(entry)
            elif (sub := self._start_entry(entry)) is not None:
                return sub
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
        """Finish a sub-message and take the next one. Returns None when nothing is ready.

        It is taken from the same lane while that is the longest critical one.
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
                lane.waiting.bit_length() >= self._filled.bit_length()
                and not self._urgent
                and lane.waiting > self._most_uncritical
                and type(head) is not Slot
            ):
                return self._start_behind(lane)
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
        follower = self._start_behind(sub.lane)
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
        self._behind += len(followers)
        self.running -= len(followers)

    def delay(self, sub: SubMessage) -> None:
        """Note that a started sub-message has left its worker unfinished. Its lanes wait for it."""
        self.running -= 1
        self.delayed += 1
        if sub.lane is ALONE_RUNNING:
            self._widen(sub)
        for lane in _lanes_of(sub):
            lane.held = lane.waiting
            self._behind -= lane.waiting

    def resume(self, sub: SubMessage) -> None:
        """Note that a delayed sub-message is in the handler again, or is about to finish."""
        self._hold_no_more(sub)
        self.running += 1

    def release(self, sub: SubMessage) -> None:
        """Make a delayed sub-message ready for its next attempt, before all others."""
        self._hold_no_more(sub)
        self._urgent.append(sub)
        self.ready += 1

    def _hold_no_more(self, sub: SubMessage) -> None:
        self.delayed -= 1
        for lane in _lanes_of(sub):
            self._behind += lane.held
            lane.held = NOT_HELD

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
        lengths = (lane.waiting + (not lane.ready) for lane in lanes)
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
                    found[key] = waiting - 1 + (not lane.ready)
                elif keys is not None:
                    found[key] = 0
        return max(found.items(), key=lambda each: each[1], default=None)

    @property
    def _most_uncritical(self) -> float:
        # A lane in which more than this number wait is critical. One of a single sub-message never
        # has to be: either all are as short, or longer ones go first.
        most = (self.ready + self._behind) * self.critical_share / self.workers
        return most if most > 1 else 1

    def _pop_critical(self) -> Lane | None:
        # Take the longest lane out of its bucket if it is critical.
        most = self._most_uncritical
        while self._filled and 1 << self._filled.bit_length() > most:
            rank = self._filled.bit_length() - 1
            bucket = self._buckets[rank]
            while bucket:
                lane = bucket.popleft()
                if lane.rank != rank:
                    continue
                if lane.ready and lane.waiting <= most:
                    bucket.append(lane)  # The next look is at another lane of the bucket.
                    return None
                lane.rank = UNRANKED
                if lane.ready:
                    self._note_stale()  # The line has an entry for its head, too.
                    return lane
            self._filled ^= 1 << rank
        return None

    def _start_entry(self, entry: SubMessage | MultiKeyEntry) -> SubMessage | None:
        """Start the sub-message of an entry of the line, or pass it if its lane is busy."""
        if type(entry) is MultiKeyEntry:
            if entry.lanes_ahead:
                entry.passed = True
                return None
            entry.lanes_ahead = GONE
            self.ready -= 1
            self.running += 1
            return entry.sub
        lane = _lane_of(entry)
        lane.unpassed -= 1
        if lane.ready and lane.waiting > lane.unpassed:
            return self._start_ready(lane)
        return None

    def _park(self, key: Hashable) -> Lane:
        lane = self._lanes.get(key)
        if type(lane) is not Lane:
            lane = self._lanes[key] = Lane(key, None, 0)
        self.parked += 1
        self._empty += 1
        node: Any = lane.head
        lane.head = lane.tail = None
        lane.waiting = 0
        lane.held = 0
        lane.parked = True
        while node is not None:
            behind, node.next = node.next, None
            if type(node) is not Slot:
                self._behind -= 1
                node.lane = None
                self._leave(node)
            elif node.entry.lanes_ahead > 0:
                self._behind -= 1
                node.entry.lanes_ahead = GONE
            node = behind
        return lane

    def _widen(self, sub: SubMessage) -> Lane:
        # Make a queue for a sub-message that stood for its lane by itself.
        key = sub.lane_key
        is_ready = sub.lane is ALONE_READY
        lane = self._lanes[key] = Lane(key, sub, unpassed=int(is_ready))
        lane.ready = is_ready
        if not is_ready:
            lane.head = lane.tail = None
            lane.waiting = 0
        sub.lane = lane
        sub.lane_key = lane  # The line has an entry for it, whatever becomes of ``sub.lane``.
        return lane

    def _append(self, lane: Lane, node: SubMessage | Slot) -> None:
        if lane.parked:
            if type(node) is not Slot:
                self._leave(cast(SubMessage, node))
            return
        lane.unpassed += 1
        self._line.append(lane)
        tail: Any = lane.tail
        lane.tail = node
        if tail is None:
            lane.head = node
            lane.waiting = 1
            return
        tail.next = node
        waiting = lane.waiting = lane.waiting + 1
        if not waiting & (waiting - 1):
            self._grown(lane, waiting)

    def _grown(self, lane: Lane, waiting: int) -> None:
        if waiting >= HOT_WAITING and not lane.hot:
            lane.hot = True
            self._hot[lane] = None
        if lane.ready:
            self._rank(lane)

    def _rank(self, lane: Lane) -> None:
        rank = lane.waiting.bit_length() - 1
        if rank == lane.rank:
            return
        if lane.rank != UNRANKED:
            self._note_stale()
        lane.rank = rank
        while rank >= len(self._buckets):
            self._buckets.append(deque())
        self._buckets[rank].append(lane)
        self._filled |= 1 << rank

    def _note_stale(self) -> None:
        stale = self._stale = self._stale + 1
        if stale > STALE_MIN + len(self._line) // 2 + 2 * len(self._lanes):
            self._clear_stale()

    def _clear_stale(self) -> None:
        # Some entries might never be reached. Without this, there would be one for each
        # sub-message of the backlog.
        self._stale = 0
        live = list(filter(self._is_live, self._line))
        self._line.clear()
        self._line.extend(live)
        ranked = dict.fromkeys(chain.from_iterable(self._buckets))
        for bucket in self._buckets:
            bucket.clear()
        for lane in ranked:
            lane.rank = UNRANKED
            if lane.ready:
                self._rank(lane)

    def _is_live(self, entry: SubMessage | Lane | MultiKeyEntry) -> bool:
        """Return whether to keep an entry of the line. Its lane no longer counts it if not."""
        if type(entry) is MultiKeyEntry:
            return entry.lanes_ahead >= 0
        if entry.lane is ALONE_READY:
            return True
        lane = _lane_of(entry)
        stale = lane.unpassed > lane.waiting
        lane.unpassed -= stale
        return not stale

    def _start_ready(self, lane: Lane) -> SubMessage:
        lane.ready = False
        self.ready -= 1
        self.running += 1
        return self._start(lane)

    def _start_behind(self, lane: Lane) -> SubMessage:
        # Start the head of a lane that was not ready, because it is the turn of its lane.
        self._behind -= 1
        if lane.waiting <= lane.unpassed:  # The line has an entry for the head.
            if self._line[0] is lane:
                self._line.popleft()
                lane.unpassed -= 1
            else:
                self._note_stale()
        return self._start(lane)

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
            entry = head.entry
            self._pass_slot(lane, head)
            if not entry.lanes_ahead:
                self._behind -= 1
                self.ready += 1
                most = self._most_uncritical
                if entry.passed or any(each.waiting >= most for each in entry.lanes):
                    self._urgent.append(entry.sub)
                    entry.lanes_ahead = GONE
                    self._note_stale()
        else:
            lane.ready = True
            self.ready += 1
            self._behind -= 1
            if lane.waiting > lane.unpassed:
                lane.unpassed += 1
                self._line.appendleft(lane)
            if lane.waiting > 1 and lane.waiting.bit_length() != lane.rank + 1:
                self._rank(lane)

    def _pass_slot(self, lane: Lane, slot: Slot) -> None:
        # The sub-message of a slot now heads the lane, and holds its place in front of the queue.
        lane.head = slot.next
        if lane.head is None:
            lane.tail = None
        lane.waiting -= 1
        slot.entry.lanes_ahead -= 1

    def _remove(self, lane: Lane) -> None:
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


def _lanes_of(sub: SubMessage) -> Sequence[Lane]:
    lane = sub.lane
    if type(lane) is Lane:
        return (lane,)
    return () if lane is None else cast(MultiKeyEntry, lane).lanes


def _lane_of(entry: Any) -> Lane:
    # An entry that once stood for its lane by itself has the lane in place of the key.
    return cast(Lane, entry if type(entry) is Lane else entry.lane_key)
