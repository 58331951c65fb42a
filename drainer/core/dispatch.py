"""The dispatcher: the ledgers, the lanes and the barrier queues of one drain, behind one interface.

Every engine drives this object and nothing else of the core: it delivers messages, takes
sub-messages, finishes them, and reads what to write down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import attrgetter

from drainer.core.lanes import Lanes
from drainer.core.ledger import Ledger, LedgerLoad
from drainer.core.merge import Record
from drainer.core.other_claims import OtherClaims
from drainer.core.remainder import ReadSample, Remainder
from drainer.message import Barrier, Message, ShippedMessage, SubMessage, Unsplit
from drainer.model.account import KEY_LENGTH, NAMED_MOST, NONE_PARKED, ParkedLane, ParkedLanes
from drainer.model.claims import ALL, Claims, Stream
from drainer.model.order import LANE_OF, Order
from drainer.model.plan import OffsetPlan
from drainer.model.progress import DONE, Counts, Outcome, Progress
from drainer.model.settings import FailureSettings
from drainer.model.status import Status
from drainer.model.sub_messages import Payloads, identify_or_reject
from drainer.model.unhandled import Unhandled
from drainer.policy.rules import RuleFilter

# What the objects of one message and one sub-message take in memory beside the record's bytes, and
# beside sub-keys and payloads (CPython 3.11, measured with tracemalloc).
MESSAGE_BYTES = 500
SUB_MESSAGE_BYTES = 300
WHOLE_BYTES = MESSAGE_BYTES + SUB_MESSAGE_BYTES

_SUB_KEYS = attrgetter("keys")


class BarrierQueue:
    """Sub-messages of one ledger that wait for a barrier, or for the outcome of messages that
    ``split`` rejected; the barrier first."""

    __slots__ = ("running", "undecided", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[SubMessage] = deque()
        self.running = False
        self.undecided = 0  # messages whose turn has come


class Dispatcher:
    """The state of one drain over some partitions of a topic; has one owner and takes no locks.

    ``parked`` are the lanes (``repr`` of their keys) that an earlier run parked behind a dead
    letter, and the partitions that it parked behind a barrier. What ``selects`` rejects stays
    pending, and holds back nothing. ``named`` is what that run reported of lanes. What a rule of
    ``rule_filter`` takes out never enters a lane.

    ``others`` is what claims other than "all" have finished: it is neither read, pending nor
    finished here, and no message waits for it. Partitions that are ``behind`` have something
    unfinished before what is delivered here, so a barrier of theirs can't run.
    """

    claim = ALL  # whose account it keeps
    state = None  # of tasks: it has none
    unbalanced = False
    deferred = 0  # sub-messages that wait for others than those of this run

    def __init__(
        self,
        ledgers: Mapping[int, Ledger],
        order: Order = Order.SUB_KEY,
        parked: Iterable[str] = (),
        selects: Callable[[SubMessage], bool] | None = None,
        rule_filter: RuleFilter | None = None,
        others: OtherClaims | None = None,
        named: ParkedLanes = NONE_PARKED,
        behind: Set[int] = frozenset(),
    ) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.load = LedgerLoad(len(ledgers))
        # Of thousands, most questions are about those that are open.
        self._incomplete: list[Ledger] = []
        self._undelivered: list[Ledger] = []
        self._changing: dict[int, Ledger] = {}
        for number, ledger in ledgers.items():
            self.open(number, ledger)
        self.parked = set(parked)
        self.lanes = Lanes(self._leave, self.parked.copy())
        self._behind = behind
        self.leaves_something = bool(self.parked)  # whether not all will be done in this run
        self._newly_parked: list[str] = []
        self._named = list(named.of(self.parked))
        self._selects = selects
        self.rule_filter = rule_filter or RuleFilter()
        self.ruled_out = 0  # sub-messages, in this run: no call was made for them
        self._sift = self.rule_filter.sift if self.rule_filter.has_rules or selects else None
        self._others = others
        # Whether expressions are evaluated for what is delivered.
        self.evaluates = self._sift is not None or (others is not None and others.evaluates)
        self._shared_below: dict[int, int] = {}  # by partition, the offset; empty when there's none
        if others is not None:
            self._shared_below = {number: others.highest(number) for number in self.ledgers}
        self._lane_of = LANE_OF.get(order)
        self._ordered = order is not Order.NONE
        self._payloads = Payloads()
        self.barrier_queues: dict[int, BarrierQueue] = {}  # by ledger
        self.rejected: deque[Unsplit] = deque()  # their turn has come; see ``next_rejected``
        self._shut = {  # ledgers
            number
            for number, ledger in self.ledgers.items()
            if all_of(Stream(number).partition) in self.parked and not ledger.complete
        }
        self.lanes.parked = len({Stream(each).partition for each in self._shut})
        self.take = self.lanes.take
        self.take_next_in_lane = self.lanes.take_next_in_lane
        self.delay, self.resume = self.lanes.delay, self.lanes.resume

    def open(self, number: int, ledger: Ledger) -> None:
        """Takes a ledger in, to which nothing was delivered yet."""
        self.ledgers[number] = self._changing[number] = ledger
        ledger.load = self.load
        self._incomplete.append(ledger)
        self._undelivered.append(ledger)

    @property
    def complete(self) -> bool:
        incomplete = self._incomplete
        while incomplete and incomplete[-1].complete:  # it stays so
            incomplete.pop()
        return not incomplete

    @property
    def delivered(self) -> bool:
        """Whether nothing of the backlog remains to be fetched."""
        undelivered = self._undelivered
        while undelivered and undelivered[-1].delivered:
            undelivered.pop()
        return not undelivered

    @property
    def ready(self) -> int:
        """Lanes that wait for a worker."""
        return self.lanes.ready

    @property
    def left_pending(self) -> int:
        """Messages whose sub-messages all stay pending in this run: parked, or not selected."""
        return self.load.left_pending

    @property
    def pending_bytes(self) -> int:
        """An estimate of the memory that delivered and unfinished messages take."""
        return self.load.pending_bytes

    def deliver(self, message: Message, subs: Iterable[SubMessage]) -> None:
        """Takes in a message with what it split into.

        When ``subs`` has something that is not a sub-message, or a key that is not one, the whole
        message is one unit, as when ``split`` raises.

        Raises SplitFailed when ``subs`` is not what an earlier drain saw. Nothing of this message
        is taken in then.
        """
        number = message.origin.stream
        sequence, keys = identify_or_reject(message, subs)
        size = self._size_of(message, sequence)
        shared, fate = 0, DONE
        if self._shared_below and message.offset < self._shared_below[number]:
            shared, fate = self._finished_by_others(message, sequence)
        done = self.ledgers[number].deliver(message, keys, size, shared, fate)
        self._let_in(message, sequence, done)

    def deliver_parts(self, messages: Sequence[ShippedMessage]) -> None:
        """``wants`` and ``deliver`` for messages of one partition in their order, of which only
        some sub-messages came along.

        The others are in no account here.
        """
        ledger = self.ledgers[messages[0].origin.stream]
        subs = list(chain.from_iterable([message.subs for message in messages]))
        if not (_are_plain(subs) and self._is_plain(ledger, messages)):
            for message in messages:
                if self.wants(message):
                    self._deliver_part(message)
            return
        for message in messages:
            message.left = count = len(message.subs)
            message.size += MESSAGE_BYTES + SUB_MESSAGE_BYTES * count
            message.subs = ()  # they refer to each other
        ledger.deliver_fresh(messages, len(subs))
        self.lanes.push_each(subs)

    def _deliver_part(self, message: ShippedMessage) -> None:
        subs, message.subs = message.subs, ()  # they refer to each other
        message.own = sum(1 << sub.index for sub in subs)
        size = message.size + MESSAGE_BYTES + SUB_MESSAGE_BYTES * len(subs)
        ledger = self.ledgers[message.origin.stream]
        done = ledger.deliver(message, message.sub_keys, size, own=message.own)
        self._let_in(message, subs, done)

    def _size_of(self, message: Message, subs: Sequence[SubMessage]) -> int:
        size = message.size + MESSAGE_BYTES + SUB_MESSAGE_BYTES * len(subs)
        return size + self._payloads.bytes_of(message, subs)

    def _finished_by_others(
        self, message: Message, subs: Sequence[SubMessage]
    ) -> tuple[int, Outcome]:
        assert self._others is not None
        return self._others.finished(message, subs), self._others.fate(message)

    def _let_in(self, message: Message, subs: Sequence[SubMessage], done: int) -> None:
        # ``done`` has the bits of those that need not be handled.
        number = message.origin.stream
        queue = self.barrier_queues.get(number) if self.barrier_queues else None
        if subs and type(subs[0]) is Unsplit and message.left:
            message.ledger.reject(message)
        if self._selects is not None or self._sift is not None:
            done = self._take_out(message, subs, done)
        if number in self._shut:
            self._leave_alone(subs, done, lambda sub: False)
            return
        if not done and queue is None and self._lane_of is None and _are_plain(subs):
            self.lanes.push_each(subs)
            return
        for sub in subs:
            if done >> sub.index & 1:
                continue
            if queue is None and isinstance(sub, Barrier):
                queue = self.barrier_queues[number] = BarrierQueue()
            if queue is None:
                self._push(sub)
            else:
                queue.waiting.append(sub)
        if queue is not None:
            self._open(number, queue)

    def deliver_whole(self, messages: Sequence[Message]) -> None:
        """Takes in messages that are one sub-message each, by their own keys.

        It is ``wants`` and ``deliver`` for the default split, and for records of one partition in
        their order.
        """
        ledger = self.ledgers[messages[0].origin.stream]
        if not self._is_plain(ledger, messages):
            for message in messages:
                if self.wants(message):
                    self.deliver(message, [SubMessage(message.key, message.value)])
            return
        subs = []
        for message in messages:
            key = message.key
            sub = SubMessage(key, message.value)
            sub.message = message
            sub.index = 0
            message.sub_keys = (key,)
            message.left = 1
            message.size += WHOLE_BYTES
            subs.append(sub)
        ledger.deliver_fresh(messages, len(messages))
        self.lanes.push_each(subs)

    def _is_plain(self, ledger: Ledger, messages: Sequence[Message]) -> bool:
        """Whether all that these split into enters lanes by its own keys, and none began before."""
        if self.barrier_queues or self._shut or self._lane_of or self._selects or self._sift:
            return False
        if self._shared_below:
            first = messages[0]
            if first.offset < self._shared_below[first.origin.stream]:
                return False
        return ledger.fresh(messages)

    def wants(self, message: Message) -> bool:
        """Whether a fetched message is to be delivered; notes it as passed when it is not."""
        offset = message.offset
        ledger = self.ledgers[message.origin.stream]
        if ledger.position <= offset < ledger.end and not ledger.resumed:  # of most, in one call
            return True
        if ledger.wants(offset):
            return True
        ledger.reach(offset + 1)
        return False

    def skip_to(self, partition: int, position: int) -> None:
        """Notes that no record below ``position`` is left to deliver (holes, finished before)."""
        self.ledgers[partition].reach(position)

    def finish(self, sub: SubMessage, outcome: Outcome = Outcome.DONE) -> None:
        """Ends a sub-message that was taken."""
        message = sub.message
        message.ledger.finish(message, sub.index, outcome)
        self.lanes.finish(sub)
        if self.barrier_queues:
            self._finished_beside_queue(sub)

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        """``finish`` as done, then ``take``, in one call: the hot path of every worker."""
        message = sub.message
        message.ledger.finish(message, sub.index)
        if self.barrier_queues:
            self.lanes.finish(sub)
            self._finished_beside_queue(sub)
            return self.lanes.take()
        return self.lanes.finish_and_take(sub)

    def next_rejected(self) -> Unsplit | None:
        """Return the next message that ``split`` rejected and whose outcome is to be decided; it
        counts as taken. None when there is none.
        """
        while self.rejected:
            unit = self.rejected.popleft()
            if unit.message.origin.stream not in self._shut:
                return unit
            self.lanes.finish(unit)  # one before it has parked the partition
            self._leave(unit)
        return None

    def release(self, sub: SubMessage) -> None:
        """Make a delayed sub-message ready for its next attempt."""
        sub.attempt += 1
        self.lanes.release(sub)

    @property
    def parked_lanes(self) -> ParkedLanes:
        """Facts on the lanes that this run leaves parked."""
        return ParkedLanes(self.lanes.parked, tuple(self._named))

    def park(self, sub: SubMessage, error: str = "") -> None:
        """Leave a sub-message that was taken pending for this run, and all behind it.

        ``error`` is the reason.
        """
        for key in self.lanes.park(sub):
            self._name(repr(key), sub, error)
        self._leave(sub)
        if isinstance(sub, Barrier):
            self._shut_behind(sub, error)

    def park_behind(self, sub: SubMessage, outcome: Outcome, error: str = "") -> None:
        """Ends a sub-message that was taken, and leaves what is behind it pending, for later runs
        too: the plan and the journal have these lanes."""
        self.leaves_something = True
        message = sub.message
        message.ledger.finish(message, sub.index, outcome)
        if isinstance(sub, Barrier):
            self.lanes.park(sub)
            self._shut_behind(sub, error)
            self._note_parked(all_of(sub.message.partition))
            return
        if self._ordered:
            for key in self.lanes.park(sub):
                self._note_parked(text := repr(key))
                self._name(text, sub, error)
        else:
            self.lanes.finish(sub)  # nothing is behind it
        if self.barrier_queues:
            self._finished_beside_queue(sub)

    def left_behind(self) -> set[str]:
        """Return what is to be ``parked`` for whoever delivers what comes after, once nothing is
        left to do: also what waits for a sub-message or a barrier that has no turn."""
        shut = (all_of(Stream(each).partition) for each in self._shut | self.barrier_queues.keys())
        return {*shut, *map(repr, self.lanes.keys if self._ordered else ())}

    def newly_parked(self) -> list[str]:
        """Lanes parked behind a dead letter since the last call, for the journal."""
        found, self._newly_parked = self._newly_parked, []
        return found

    def unhandled(self) -> Unhandled:
        """Return the counts of what finished without being handled, over all runs."""
        return self.rule_filter.unhandled()

    def progress(self) -> dict[int, Progress]:
        """All that is finished here, by partition: the plan's claim "all"."""
        return {number: ledger.progress() for number, ledger in self.ledgers.items()}

    @property
    def watermarks(self) -> dict[int, int]:
        return {number: ledger.watermark for number, ledger in self.ledgers.items()}

    def claims(self) -> Claims:
        """Claims for the plan: this progress, and of the other claims those that add to it."""
        others: Claims = {}
        if self._others is not None:
            marks = {number: ledger.watermark for number, ledger in self.ledgers.items()}
            others = self._others.needed(marks)
        return {ALL: self.progress(), **others}

    def record(self) -> Record | None:
        """Return what the journal is to have since the last call; None when nothing is done."""
        if not (changes := self.changes()):
            return None
        unhandled = self.unhandled() or None
        return Record(changes, tuple(self.newly_parked()), unhandled, self.claim)

    def changes(self) -> dict[int, Progress]:
        """Progress since the last call, by partition, for the journal."""
        found = {}
        for number, ledger in self._changing.items():
            if (changes := ledger.changes()) is not None:
                found[number] = changes
        for number in found:
            if self.ledgers[number].complete:  # nothing more comes of it
                del self._changing[number]
        return found

    def messages_passed(self, number: int) -> int:
        """Messages of a partition that nothing is left of, in all runs."""
        return self.ledgers[number].messages_finished

    def subs_finished(self, number: int) -> int:
        """Sub-messages of a partition that are finished, in all runs."""
        return self.ledgers[number].tally()[1].finished

    def complete_status(
        self, status: Status, plan: OffsetPlan, failures: FailureSettings, pause_s: float
    ) -> Status:
        """Complete the status of a run to that of the drain, of which a run may be only a part."""
        return status

    def unread(self) -> str:
        """Return a text that names the offsets that this run does not read; empty for none."""
        return ""

    def remainder(self) -> Remainder:
        """Estimate what is left, by what was delivered in this run."""
        left_pending, read = (
            self.load.left_pending_subs,
            sum(e.subs_read for e in self.ledgers.values()),
        )
        subs = self.tally()[1]
        return Remainder.of(
            self._samples(),
            handled=subs.finished - self.ruled_out,
            waiting=subs.pending - left_pending,
            share=(read - self.ruled_out - left_pending) / read if read else 1.0,
        )

    def _samples(self) -> Mapping[int, ReadSample]:
        below = self._shared_below
        return {number: each.sample(below.get(number, 0)) for number, each in self.ledgers.items()}

    def tally(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages over all ledgers."""
        return _summed(ledger.tally() for ledger in self.ledgers.values())

    def counts(self) -> tuple[Counts, Counts]:
        """Count likewise, what is pending one by one, so that the law can fail."""
        return _summed(ledger.counts() for ledger in self.ledgers.values())

    def _take_out(self, message: Message, subs: Sequence[SubMessage], done: int) -> int:
        if self._selects is not None:
            done |= self._leave_alone(subs, done, self._selects)
        if self._sift is None:
            return done
        taken = self._sift(message, subs, done)
        self.ruled_out += taken.bit_count()
        return done | taken

    def _leave_alone(
        self, subs: Sequence[SubMessage], done: int, selects: Callable[[SubMessage], bool]
    ) -> int:
        alone = 0
        for sub in subs:
            if not done >> sub.index & 1 and not selects(sub):
                alone |= 1 << sub.index
                self._leave(sub)
        return alone

    def _leave(self, sub: SubMessage) -> None:
        self.leaves_something = True
        self._leave_pending(sub)

    @staticmethod
    def _leave_pending(sub: SubMessage) -> None:
        message = sub.message
        message.ledger.leave_pending(message)
        sub.content = None

    def _note_parked(self, text: str) -> None:
        if text not in self.parked:
            self.parked.add(text)
            self._newly_parked.append(text)

    def _name(self, key: str, sub: SubMessage, error: str) -> None:
        if len(self._named) < NAMED_MOST:
            self._named.append(ParkedLane(key[:KEY_LENGTH], str(sub), error))

    def _shut_behind(self, barrier: Barrier, error: str) -> None:
        # All that is not in a lane yet of its partition is behind it.
        number = barrier.message.origin.stream
        if isinstance(barrier, Unsplit):
            error = f"split failed, so its lanes are unknown: {error}"
        self._name(all_of(barrier.message.partition), barrier, error)
        self._shut.add(number)
        queue = self.barrier_queues.pop(number, None)
        for sub in () if queue is None else queue.waiting:
            self._leave(sub)

    def _push(self, sub: SubMessage) -> None:
        if self._lane_of is not None:
            self.lanes.push(sub, self._lane_of(sub))
        elif sub.keys is None:
            self.lanes.push(sub, sub.key)
        else:
            self.lanes.push_to_all(sub, sub.keys)

    def _finished_beside_queue(self, sub: SubMessage) -> None:
        number = sub.message.origin.stream
        queue = self.barrier_queues.get(number)
        if queue is not None:
            if isinstance(sub, Unsplit):
                queue.undecided -= 1
            elif isinstance(sub, Barrier):
                queue.running = False
            self._open(number, queue)

    def _open(self, number: int, queue: BarrierQueue) -> None:
        # Lets through what no barrier holds back any more.
        waiting = queue.waiting
        while waiting and not queue.running:
            sub = waiting[0]
            if isinstance(sub, Unsplit):
                self.lanes.start_alone(waiting.popleft())
                self.rejected.append(sub)
                queue.undecided += 1
                continue
            if queue.undecided:
                return
            if not isinstance(sub, Barrier):
                self._push(waiting.popleft())
                continue
            if sub.message.partition in self._behind:  # what it waits for is left pending elsewhere
                self.lanes.parked += 1
                self._shut_behind(sub, "something before this barrier is left pending")
                return
            first = self.ledgers[sub.message.origin.stream].first_pending
            if first is not sub.message or not _is_next(sub):
                return
            queue.running = True
            self.lanes.push_alone(waiting.popleft())
        if not waiting and not queue.running and not queue.undecided:
            del self.barrier_queues[number]


def _summed(accounts: Iterable[tuple[Counts, Counts]]) -> tuple[Counts, Counts]:
    pairs = list(accounts)
    return Counts.sum(messages for messages, _ in pairs), Counts.sum(subs for _, subs in pairs)


def _are_plain(subs: Sequence[SubMessage]) -> bool:
    # Whether each of them has one sub-key, and is no barrier.
    return set(map(type, subs)) == {SubMessage} and not any(map(_SUB_KEYS, subs))


def _is_next(sub: SubMessage) -> bool:
    # Whether all before it in its message is finished; by rules some behind it may be, too.
    before = (1 << sub.index) - 1
    if isinstance(sub.message, ShippedMessage):
        before &= sub.message.own
    part = sub.message.part
    return not before or (part is not None and (part.bits | part.by_others) & before == before)


def all_of(partition: int) -> str:
    """Name of all lanes of a partition in a plan; no repr of a key looks like it."""
    return f"partition {partition}"
