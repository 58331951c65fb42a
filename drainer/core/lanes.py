"""Lanes: a queue for each sub-key, of which one sub-message runs at a time, and which is next.

With C calls at once, total work W and the longest lane L, nothing beats max(W/C, L). Only a lane
that is critical must run at once for that: one with more than about half of (all waiting work) / C.
Among critical lanes the longest goes first. Everything else runs oldest message first, so that the
watermark follows the work (docs/explanation/proofs.md has the proof).

Two structures find the next lane in O(1), amortised:

- The line has the ready lanes in blocks, by the age of the sub-message at the head. A block has
  about BLOCK sub-messages that were delivered one after another. In a block, the lane that is ready
  for the longest time goes first. A lane has one entry. If it starts before its turn, it
  keeps the entry, which is looked at when its turn comes.
- Buckets have the lanes in which several wait by how many, rounded to a quarter of an octave. A
  lane may be in a bucket that is too high, and is moved when it is found there. Which buckets are
  critical depends on the total, so no lane stores it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import nlargest
from math import ceil
from typing import Any, ClassVar, NamedTuple, cast

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
# With smaller blocks, the oldest first is more exact, and more often a new block begins.
BLOCK = 64
# Blocks keep entries of lanes that were started before their turn. Such entries are cleared once
# there are more blocks than this, and twice as many as after the last clearing.
BLOCKS_MIN = 64

# Most lanes only ever have one sub-message. It stands for its lane by itself until a second one
# comes. Until then, its ``lane`` is one of these, and its ``next`` the number of its block.
ALONE_READY = "alone, ready"
ALONE_RUNNING = "alone, running"

UNRANKED = 0  # The rank of a lane that is in no bucket.
SHORTEST = 2  # A single sub-message is never critical: either all are as short, or longer go first.
NOT_HELD = -1
# By rank of a bucket, the least number of sub-messages that wait in a lane of it.
LEAST = (*range(4), *(quarter << octave for octave in range(60) for quarter in range(4, 8)))
GONE = -1  # The ``lanes_ahead`` of a sub-message that has left the line, or can't become ready.


def look_ahead(concurrency: int) -> int:
    """Return the number of ready lanes at which it is not worth reading on."""
    return max(LOOK_AHEAD_MIN, LOOK_AHEAD_PER_WORKER * concurrency)


class Lane:
    """The queue of one sub-key.

    Attributes:
        waiting: the number of its sub-messages that were not started.
        ready: whether its head may start.
        early: whether it has an entry from which it was not started, because it was critical.
        rank: the bucket that has it, or UNRANKED.
        limit: as many as this would have to wait for a higher bucket.
        held: while a delayed sub-message holds it up, or a parked one for ever, the number of those
            behind; else NOT_HELD.
    """

    __slots__ = (
        *("head", "held", "hot", "key", "early", "limit", "parked", "rank", "ready"),
        *("tail", "waiting"),
    )

    lane: ClassVar[None] = None  # Only an entry of the line that stands alone has another one.

    def __init__(self, key: Hashable, first: SubMessage | Slot | None) -> None:
        self.key = key
        self.head: SubMessage | Slot | None = first
        self.tail: SubMessage | Slot | None = first
        self.waiting = 1
        self.ready = False
        self.early = False
        self.rank = UNRANKED
        self.limit = SHORTEST
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
    critical, it goes before all lanes. ``sub`` is None once it has finished.
    """

    __slots__ = ("lanes", "lanes_ahead", "passed", "sub")

    lane: ClassVar[None] = None

    def __init__(self, sub: SubMessage, lanes_ahead: int) -> None:
        self.sub: Any = sub
        self.lanes_ahead = lanes_ahead  # The number of lanes that it does not head yet, or GONE.
        self.lanes: list[Lane] = []
        self.passed = False


Entry = SubMessage | Lane | MultiKeyEntry


class Place(NamedTuple):
    """Where a message waits in a lane.

    Attributes:
        key: the key of the lane.
        before: how many sub-messages come before its last one there, with the one that runs.
        is_ready: whether nothing comes before it and it only waits for a worker.
    """

    key: Hashable
    before: int
    is_ready: bool


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
        self._blocks: defaultdict[int, deque[Entry]] = defaultdict(deque)
        self._current = self._newest = 0  # Numbers of blocks.
        self._old: deque[Entry] = deque()  # Lanes whose heads are older than the current block.
        self._line = self._blocks[0]  # The current block, or what is older.
        self._room = BLOCK
        self._blocks_most = BLOCKS_MIN
        # A dict would look for its first entry among all that were removed before.
        self._buckets: list[OrderedDict[Lane, None]] = []
        self._filled = 0  # Bit r is set when bucket r has a lane.
        self.workers, self.critical_share = 1, CRITICAL_SHARE_UNREAD
        # A lane is critical if what waits in it, times this, is more than all waiting work.
        self._weight = 0.0
        self._top = UNRANKED  # The highest bucket that has a lane.
        self._longest = SHORTEST  # At least this many waited in the lanes of the highest bucket.
        self._critical_below = 0  # If less work waits, lanes of the highest bucket are critical.
        self._weigh()
        # All waiting work: sub-messages that are ready, or wait behind others in lanes that are not
        # held up. The latter are counted apart too.
        self._waiting = self._behind = 0
        # Sub-messages that are ready and go before all lanes: barriers, those that are tried again,
        # and some with several sub-keys.
        self._urgent: deque[SubMessage] = deque()
        self._hot: dict[Lane, None] = {}
        self.running = 0  # Sub-messages in the handler.
        # Sub-messages that were started and are not finished, but that no worker has now.
        self.delayed = 0
        self.parked = 0  # The number of parked lanes, and of partitions parked behind a barrier.
        self._empty = 0  # Lanes that are kept only because they are parked.

    def __len__(self) -> int:
        """Return the number of lanes that have something waiting or running."""
        return len(self._lanes) - self._empty

    @property
    def ready(self) -> int:
        """The number of sub-messages that may start now."""
        return self._waiting - self._behind

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys of the lanes that have something waiting or running, or are parked."""
        return self._lanes.keys()

    def adjust(self, workers: int | None = None, critical_share: float | None = None) -> None:
        """Change the number of workers, or the share from which a lane is critical."""
        self.workers = workers or self.workers
        self.critical_share = critical_share or self.critical_share
        self._weigh()

    def push(self, sub: SubMessage, key: Hashable) -> None:
        """Put a sub-message at the end of the lane of ``key``.

        Raises TypeError when the key is not hashable, in which case nothing has changed.
        """
        lane = self._lanes.get(key)
        if lane is None:
            if self._parked_before and repr(key) in self._parked_before:
                self._park(key)
                self._leave(sub)
                return
            self._lanes[key] = sub
            sub.next = self._newest
            sub.lane = ALONE_READY
            sub.lane_key = key
            self._blocks[self._newest].append(sub)
            self._waiting += 1
            self._note_delivered(1)
            return
        if isinstance(lane, SubMessage):
            lane = self._widen(lane)
        sub.lane = lane
        sub.next = None
        self._append(lane, sub)
        if lane.held == NOT_HELD:
            self._behind += 1
            self._waiting += 1
        else:
            lane.held += 1
        self._note_delivered(1)

    def push_each(self, subs: Sequence[SubMessage]) -> None:
        """Push many sub-messages, each into the lane of its own sub-key."""
        lanes, number = self._lanes, self._newest
        line = self._blocks[number]
        started = behind = 0
        for sub in subs:
            key = sub.key
            lane = lanes.get(key)
            if lane is None and not self._parked_before:
                started += 1
                lanes[key] = sub
                sub.next = number
                sub.lane = ALONE_READY
                sub.lane_key = key
                line.append(sub)
            elif type(lane) is Lane and lane.held == NOT_HELD:
                behind += 1
                sub.next = None
                sub.lane = lane
                sub.lane_key = number
                tail: Any = lane.tail
                if tail is None:
                    lane.head = sub
                else:
                    tail.next = sub
                lane.tail = sub
                waiting = lane.waiting = lane.waiting + 1
                if waiting >= lane.limit:
                    self._grown(lane)
            else:
                self.push(sub, key)
                number = self._newest  # The call may have begun a block.
                line = self._blocks[number]
        self._behind += behind
        self._waiting += started + behind
        self._note_delivered(started + behind)

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
                self._pass_slot(lane, slot)
                continue
            if isinstance(lane, SubMessage):
                lane = self._widen(lane)
            entry.lanes.append(lane)
            self._append(lane, slot)
            if lane.parked:
                entry.lanes_ahead = GONE
        if entry.lanes_ahead < 0:
            return
        self._blocks[self._newest].append(entry)
        if entry.lanes_ahead:
            self._behind += 1
        self._waiting += 1
        self._note_delivered(1)

    def push_alone(self, sub: SubMessage) -> None:
        """Make a sub-message ready that stands in no lane: a barrier whose turn has come."""
        sub.lane = None
        self._urgent.append(sub)
        self._waiting += 1

    def start_alone(self, sub: SubMessage) -> None:
        """Start a sub-message that stands in no lane and goes to no worker."""
        sub.lane = None
        self.running += 1

    def take(self) -> SubMessage | None:
        """Start the next sub-message, and return it; None when nothing is ready.

        It is that of the longest critical lane, or else the oldest that is ready.
        """
        sub = self._next()
        if sub is not None:
            self.running += 1
        return sub

    def _next(self) -> SubMessage | None:
        # As take(), but the caller counts what runs.
        if self._urgent:
            self._waiting -= 1
            return self._urgent.popleft()
        if self._waiting < self._critical_below:
            critical = self._start_critical()
            if critical is not None:
                return critical
        line = self._line
        while line or (line := self._next_block()):
            entry: Any = line.popleft()
            lane = entry.lane
            if lane is ALONE_READY:
                entry.lane = ALONE_RUNNING
                self._waiting -= 1
                alone: SubMessage = entry
                return alone
            if type(entry) is Lane:
                lane = entry
                if (lane.early and self._has_later_entry(lane)) or not lane.ready:
                    continue
            elif type(entry) is MultiKeyEntry:
                if entry.lanes_ahead:
                    entry.passed = True
                    continue
                entry.lanes_ahead = GONE
                self._waiting -= 1
                several: SubMessage = entry.sub
                return several
            elif type(lane) is Lane and lane.ready and lane.head is entry:
                lane.early = True  # The lane has an entry of its own behind this one.
            else:
                continue
            lane.ready = False
            return self._start(lane)
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
            sub.lane = lane.sub = None  # The line may keep the entry for a while.
            for each in lane.lanes:
                self._advance(each)

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        """Finish a sub-message and take the next one. Returns None when nothing is ready.

        It is taken from the same lane while that is the longest critical one.
        """
        lane = sub.lane
        if lane is ALONE_RUNNING:
            del self._lanes[sub.lane_key]
        elif type(lane) is Lane:
            if (
                lane.waiting >= self._longest
                and lane.waiting * self._weight > self._waiting
                and not self._urgent
                and type(lane.head) is not Slot
            ):
                self._behind -= 1
                return self._start(lane)
            self._advance(lane)
        else:
            self.finish(sub)
            return self.take()
        following = self._next()
        if following is None:
            self.running -= 1
        return following

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
        self._behind -= 1
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
        if lane.waiting >= lane.limit:
            self._grown(lane)
        self._behind += len(followers)
        self._waiting += len(followers)
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
            self._waiting -= lane.waiting

    def resume(self, sub: SubMessage) -> None:
        """Note that a delayed sub-message is in the handler again, or is about to finish."""
        self._hold_no_more(sub)
        self.running += 1

    def release(self, sub: SubMessage) -> None:
        """Make a delayed sub-message ready for its next attempt, before all others."""
        self._hold_no_more(sub)
        self._urgent.append(sub)
        self._waiting += 1

    def _hold_no_more(self, sub: SubMessage) -> None:
        self.delayed -= 1
        for lane in _lanes_of(sub):
            self._behind += lane.held
            self._waiting += lane.held
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
        sub.lane = lane.sub = None
        return tuple(self._park(each.key).key for each in lane.lanes)

    def hottest(self, most: int) -> list[tuple[Hashable, int]]:
        """Return the hottest lanes, each as its sub-key and the number that wait in it.

        Only lanes that have reached HOT_WAITING are looked at.
        """
        lanes = nlargest(most, self._hot, key=lambda lane: lane.waiting)
        return [(lane.key, lane.waiting) for lane in lanes if lane.waiting]

    def longest(self, *, among_all: bool) -> tuple[int, SubMessage | None]:
        """Return how many sub-messages the longest lane has, with the one that runs, and which of
        them is the first that waits.

        Only lanes that have reached HOT_WAITING are looked at, or all, which takes long if there
        are many.
        """
        lanes = self._lanes.values() if among_all else self._hot
        lane = max((each for each in lanes if type(each) is Lane), key=_length, default=None)
        if lane is None:
            return (min(1, len(self)) if among_all else 0), None
        head: Any = lane.head
        return _length(lane), head.entry.sub if type(head) is Slot else head

    def place_of(self, message: Message, keys: Iterable[Hashable] | None) -> Place | None:
        """Return the lane in which a message waits longest, and its place there.

        ``keys`` are the keys of its unfinished sub-messages. If they are not known, None stands for
        all lanes, but a lane is found only while something of the message waits in it. Whatever
        runs in a lane comes before what waits there. Returns None if no lane is found.
        """
        found: list[Place] = []
        for key in dict.fromkeys(self._lanes if keys is None else keys):
            lane = self._lanes.get(key)
            if isinstance(lane, SubMessage):
                if lane.message is message:
                    found.append(Place(key, 0, lane.lane is ALONE_READY))
            elif lane is not None and not lane.parked:
                waiting = _waiting_up_to(lane, message)
                if waiting:
                    before = waiting - 1 + (not lane.ready)
                    found.append(Place(key, before, before == 0))
                elif keys is not None:
                    found.append(Place(key, 0, is_ready=False))
        # What runs holds the message back rather than what only waits for a worker.
        return max(found, key=lambda each: (each.before, not each.is_ready), default=None)

    def _note_delivered(self, subs: int) -> None:
        self._room -= subs
        if self._room <= 0:
            self._begin_block()

    def _begin_block(self) -> None:
        self._room = BLOCK
        if len(self._blocks) > self._blocks_most:
            self._clear_blocks()
        if self._newest > self._current and not self._blocks[self._newest]:
            del self._blocks[self._newest]
        self._newest += 1

    def _park(self, key: Hashable) -> Lane:
        lane = self._lanes.get(key)
        if type(lane) is not Lane:
            lane = self._lanes[key] = Lane(key, None)
        self.parked += 1
        self._empty += 1
        node: Any = lane.head
        lane.head = lane.tail = None
        lane.waiting = 0
        lane.held = 0
        lane.parked = True
        if lane.rank != UNRANKED:
            self._unrank(lane)
        while node is not None:
            behind, node.next = node.next, None
            if type(node) is not Slot:
                self._behind -= 1
                self._waiting -= 1
                node.lane = None
                self._leave(node)
            elif node.entry.lanes_ahead > 0:
                self._behind -= 1
                self._waiting -= 1
                node.entry.lanes_ahead = GONE
            node = behind
        return lane

    def _widen(self, sub: SubMessage) -> Lane:
        # Make a queue for a sub-message that stood for its lane by itself.
        lane = self._lanes[sub.lane_key] = Lane(sub.lane_key, sub)
        if sub.lane is ALONE_READY:
            lane.ready = True
            number: Any = sub.next
            sub.lane_key = number
            self._blocks[number].append(lane)
        else:
            lane.head = lane.tail = None
            lane.waiting = 0
        sub.lane = lane
        sub.next = None
        return lane

    def _append(self, lane: Lane, node: SubMessage | Slot) -> None:
        if lane.parked:
            if type(node) is not Slot:
                self._leave(cast(SubMessage, node))
            return
        if type(node) is not Slot:
            cast(SubMessage, node).lane_key = self._newest
        tail: Any = lane.tail
        lane.tail = node
        if tail is None:
            lane.head = node
        else:
            tail.next = node
        lane.waiting += 1
        if lane.waiting >= lane.limit:
            self._grown(lane)

    def _grown(self, lane: Lane) -> None:
        if lane.waiting >= HOT_WAITING and not lane.hot:
            lane.hot = True
            self._hot[lane] = None
        if lane.rank != UNRANKED:
            self._unrank(lane)
        # The lane goes into a bucket up to two octaves too high, so that a lane that grows is moved
        # seldom.
        self._rank(lane, 4 * lane.waiting - 1)
        if lane.waiting < HOT_WAITING < lane.limit:
            lane.limit = HOT_WAITING

    def _rank(self, lane: Lane, waiting: int) -> None:
        # Put a lane that no bucket has into the bucket of so many that wait.
        if waiting < SHORTEST:
            return
        # Each number below 8 has a bucket of its own. After that, each octave has four.
        shift = max(0, waiting.bit_length() - 3)
        rank = lane.rank = (shift << 2) + (waiting >> shift)
        lane.limit = LEAST[rank + 1]
        while rank >= len(self._buckets):
            self._buckets.append(OrderedDict())
        self._buckets[rank][lane] = None
        self._filled |= 1 << rank
        if rank > self._top:
            self._weigh()

    def _unrank(self, lane: Lane) -> None:
        rank = lane.rank
        bucket = self._buckets[rank]
        del bucket[lane]
        lane.rank = UNRANKED
        lane.limit = SHORTEST
        if not bucket:
            self._filled ^= 1 << rank
            if rank == self._top:
                self._weigh()

    def _weigh(self) -> None:
        # Find which buckets are critical anew.
        # One worker takes as long in any order.
        self._weight = self.workers / self.critical_share if self.workers > 1 else 0.5
        self._top = rank = max(UNRANKED, self._filled.bit_length() - 1)
        self._longest = max(SHORTEST, LEAST[rank])
        self._critical_below = ceil((LEAST[rank + 1] - 1) * self._weight)

    def _start_critical(self) -> SubMessage | None:
        # Start the longest lane if it is critical.
        while self._filled and self._waiting < self._critical_below:
            longest = self._longest
            lane = next(iter(self._buckets[self._top]))
            self._unrank(lane)
            if lane.ready:
                if lane.waiting >= longest:
                    lane.early = True
                    lane.ready = False
                    return self._start(lane)
                self._rank(lane, lane.waiting)
        return None

    def _has_later_entry(self, lane: Lane) -> bool:
        # Take back the entry of a lane that started early. If it is ready again, and the block of
        # its head comes later, it gets an entry there.
        lane.early = False
        head: Any = lane.head
        later: bool = lane.ready and head.lane_key > self._current
        if later:
            self._blocks[head.lane_key].append(lane)
        return later

    def _next_block(self) -> deque[Entry]:
        # Go on to the next block that has an entry, or to the newest.
        if self._line is self._old:
            self._line = self._blocks[self._current]
        while not self._line and self._current < self._newest:
            self._blocks.pop(self._current, None)
            self._current += 1
            if self._current not in self._blocks:
                self._current = min(self._blocks, default=self._newest)
            self._line = self._blocks[self._current]
        return self._line

    def _clear_blocks(self) -> None:
        # While critical lanes go first, blocks might never be reached. Without this, there would be
        # some for the whole backlog.
        for block in (self._old, *self._blocks.values()):
            live = [entry for entry in block if _is_live(entry)]
            block.clear()
            block.extend(live)
        self._blocks = defaultdict(
            deque, {n: each for n, each in self._blocks.items() if each or n == self._current}
        )
        self._blocks_most = max(BLOCKS_MIN, 2 * len(self._blocks))

    def _start(self, lane: Lane) -> SubMessage:
        sub: Any = lane.head
        behind = lane.head = sub.next
        if behind is None:
            lane.tail = None  # Otherwise, lane and sub-message would form a reference cycle.
        else:
            sub.next = None
        lane.waiting -= 1
        self._waiting -= 1
        started: SubMessage = sub
        return started

    def _advance(self, lane: Lane) -> None:
        head: Any = lane.head
        if head is None:
            self._remove(lane)
        elif type(head) is Slot:
            entry = head.entry
            self._pass_slot(lane, head)
            if not entry.lanes_ahead:
                self._behind -= 1
                most = max(1, self._waiting / self._weight)
                if entry.passed or any(each.waiting >= most for each in entry.lanes):
                    self._urgent.append(entry.sub)
                    entry.lanes_ahead = GONE
        else:
            lane.ready = True
            self._behind -= 1
            if lane.rank == UNRANKED and lane.waiting >= SHORTEST:
                self._rank(lane, lane.waiting)
            if not lane.early:
                number = head.lane_key
                if number < self._current:
                    self._old.append(lane)
                    self._line = self._old
                else:
                    self._blocks[number].append(lane)

    def _pass_slot(self, lane: Lane, slot: Slot) -> None:
        # The sub-message of a slot now heads the lane, and holds its place in front of the queue.
        lane.head = slot.next
        if lane.head is None:
            lane.tail = None
        lane.waiting -= 1
        slot.entry.lanes_ahead -= 1

    def _remove(self, lane: Lane) -> None:
        del self._lanes[lane.key]
        if lane.rank != UNRANKED:
            self._unrank(lane)
        if lane.hot:
            del self._hot[lane]


def _length(lane: Lane) -> int:
    return lane.waiting + (not lane.ready)


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


def _is_live(entry: Entry) -> bool:
    """Return whether to keep an entry of the line. Its lane has none then."""
    if type(entry) is MultiKeyEntry:
        return entry.lanes_ahead >= 0
    if type(entry) is Lane:
        entry.early = entry.early and entry.ready
        return entry.ready
    lane: Any = entry.lane
    return lane is ALONE_READY or (type(lane) is Lane and lane.ready and lane.head is entry)
