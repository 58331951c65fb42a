"""The dispatcher: the ledgers, lanes and barrier queues of one drain, behind one interface.

Every engine drives this object and nothing else of the core. It delivers messages, takes
sub-messages and finishes them, and reads from it what to write to the plan and the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from drainer.core.lanes import CRITICAL_SHARE_READ, CRITICAL_SHARE_UNREAD, Lanes, Place
from drainer.core.ledger import Ledger, LedgerLoad
from drainer.core.merge import Record
from drainer.core.other_claims import OtherClaims
from drainer.core.remainder import ReadSample, Remainder
from drainer.message import Barrier, Message, ShippedMessage, SubMessage, Unsplit
from drainer.model.account import (
    KEY_LENGTH,
    NAMED_MOST,
    NONE_PARKED,
    ParkedLane,
    ParkedLanes,
    PartitionPlan,
)
from drainer.model.claims import ALL, Claims, Stream, ahead_of
from drainer.model.order import LANE_OF, Order, lane_of, lanes_of
from drainer.model.plan import OffsetPlan
from drainer.model.progress import DONE, Counts, Outcome, Progress
from drainer.model.settings import FailureSettings
from drainer.model.status import Status
from drainer.model.sub_messages import Payloads, SubKeys, identify_or_reject
from drainer.model.unhandled import Unhandled
from drainer.policy.rules import RuleFilter

# The bytes of memory that the objects of one message and of one sub-message take, without the
# record, the sub-keys and the payloads (CPython 3.11, measured with tracemalloc).
MESSAGE_BYTES = 500
SUB_MESSAGE_BYTES = 300
WHOLE_BYTES = MESSAGE_BYTES + SUB_MESSAGE_BYTES

_SUB_KEY, _SUB_KEYS = attrgetter("key"), attrgetter("keys")


class BarrierQueue:
    """The sub-messages of one ledger that wait for a barrier, beginning with the barrier.

    A message that ``split`` rejected holds back what is behind it in the same way, until its
    outcome is decided.
    """

    __slots__ = ("running", "undecided", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[SubMessage] = deque()
        self.running = False  # Whether the handler has the barrier.
        # Rejected messages whose turn has come, and whose outcome is not decided yet.
        self.undecided = 0


class Dispatcher:
    """The state of one drain over some partitions of a topic. It has one owner and takes no locks.

    Args:
        ledgers: the ledgers by number of the partition; on Spark, by number of the stream.
        order: which sub-messages share a lane.
        parked: the lanes (``repr`` of their keys) that an earlier run parked behind a dead letter,
            and the partitions that it parked behind a barrier.
        rule_filter: decides which sub-messages enter a lane. A sub-message that does not enter one
            holds nothing back.
        others: what claims other than "all" have finished. The dispatcher does not count it
            as read, pending or finished, and no message waits for it.
        named: what the earlier run reported about the parked lanes.
        behind: partitions in which something before the dispatcher's first offset is not finished.
            A barrier in such a partition can't run.
    """

    claim = ALL  # The claim whose progress this dispatcher keeps.
    state = None  # There are no tasks that write what the plan does not have yet.
    unbalanced = False
    deferred = 0  # The number of sub-messages that wait for others which this run does not handle.

    def __init__(
        self,
        ledgers: Mapping[int, Ledger],
        order: Order = Order.SUB_KEY,
        parked: Iterable[str] = (),
        rule_filter: RuleFilter | None = None,
        others: OtherClaims | None = None,
        named: ParkedLanes = NONE_PARKED,
        behind: Set[int] = frozenset(),
    ) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.load = LedgerLoad(len(ledgers))
        # There may be thousands of ledgers, so those that are not complete, and those that are not
        # delivered, are kept in lists of their own.
        self._incomplete: list[Ledger] = []
        self._undelivered: list[Ledger] = []
        self._changing: dict[int, Ledger] = {}
        for number, ledger in ledgers.items():
            self.open(number, ledger)
        self.parked = set(parked)
        self.lanes = Lanes(self._leave, self.parked.copy())
        self._behind = behind
        # Whether some sub-messages will stay pending in this run.
        self.leaves_something = bool(self.parked)
        self._newly_parked: list[str] = []
        self._named = list(named.of(self.parked))
        self.rule_filter = rule_filter or RuleFilter()
        self._sift = None if self.rule_filter.passes_all else self.rule_filter.sift
        self._others = others
        # Whether expressions of rules or classes are evaluated on what is delivered.
        self.evaluates = self._sift is not None or (others is not None and others.evaluates)
        # The offset by partition below which other claims may have finished something. It is empty
        # when there are no other claims.
        self._shared_below: dict[int, int] = {}
        if others is not None:
            self._shared_below = {number: others.highest(number) for number in self.ledgers}
        self._lane_of = LANE_OF.get(order)
        self._ordered = order is not Order.NONE
        self._lanes_of = lanes_of(order)
        self._payloads = Payloads()
        self.barrier_queues: dict[int, BarrierQueue] = {}  # By number of the ledger.
        self.barriers_begun = 0
        # Rejected messages whose turn has come (see ``next_rejected``).
        self.rejected: deque[Unsplit] = deque()
        # The numbers of the ledgers of partitions that are parked behind a barrier. Where the end
        # moves, a partition that was read to its end gets more messages, which stay behind, too.
        self._shut = {
            number
            for number, ledger in self.ledgers.items()
            if all_of(Stream(number).partition) in self.parked and not ledger.complete
        }
        self.lanes.parked = len({Stream(each).partition for each in self._shut})
        self.take = self.lanes.take
        self.take_next_in_lane = self.lanes.take_next_in_lane
        self.delay, self.resume = self.lanes.delay, self.lanes.resume

    def open(self, number: int, ledger: Ledger) -> None:
        """Add a ledger to which nothing was delivered yet."""
        self.ledgers[number] = self._changing[number] = ledger
        ledger.load = self.load
        self._incomplete.append(ledger)
        self._undelivered.append(ledger)

    def freeze(self) -> None:
        """Make the ends of all ledgers final."""
        for ledger in self.ledgers.values():
            ledger.follows = False

    def extend(self, partitions: Mapping[int, PartitionPlan]) -> None:
        """Move the ends of ledgers that follow to those of the partitions, or open new ledgers."""
        for number, part in partitions.items():
            if number not in self.ledgers:
                self.open(number, Ledger(part.start, part.end, follows=True))
                if self._shared_below:
                    self._shared_below[number] = part.start
            self.ledgers[number].end = part.end
        self._undelivered = [each for each in self.ledgers.values() if not each.delivered]
        if self._undelivered:
            self.lanes.adjust(critical_share=CRITICAL_SHARE_UNREAD)

    @property
    def complete(self) -> bool:
        """Whether all ledgers are complete."""
        incomplete = self._incomplete
        while incomplete and incomplete[-1].complete:  # A complete ledger stays complete.
            incomplete.pop()
        return not incomplete

    @property
    def delivered(self) -> bool:
        """Whether nothing remains to be fetched up to the ends, which may still move."""
        undelivered = self._undelivered
        while undelivered and undelivered[-1].delivered:
            undelivered.pop()
        return not undelivered

    @property
    def ready(self) -> int:
        """The number of lanes that wait for a worker."""
        return self.lanes.ready

    @property
    def behind_barriers(self) -> int:
        """The number of sub-messages that wait for a barrier, with the barriers."""
        return sum(len(each.waiting) for each in self.barrier_queues.values())

    @property
    def pending_bytes(self) -> int:
        """The estimated memory of messages that were delivered and are not finished."""
        return self.load.pending_bytes

    def deliver(self, message: Message, subs: Iterable[SubMessage]) -> None:
        """Deliver a message with the sub-messages that it split into.

        If ``subs`` has something that is not a sub-message, or a key that can't be a sub-key, the
        whole message becomes one unit, as it does when ``split`` raises.

        Raises SplitFailed when an earlier run saw other sub-messages. In that case, nothing of the
        message is taken in.
        """
        number = message.origin.stream
        sequence, keys = identify_or_reject(message, subs)
        size = self._size_of(message, sequence)
        shared, outcome = 0, DONE
        if self._shared_below and message.offset < self._shared_below[number]:
            shared, outcome = self._finished_by_others(message, sequence)
        done = self.ledgers[number].deliver(message, keys, size, shared, outcome)
        self._let_in(message, sequence, done)

    def deliver_parts(self, messages: Sequence[ShippedMessage]) -> None:
        """Deliver messages of one stream, in their order, each with only some of its sub-messages.

        Messages that are not wanted are skipped. Sub-messages that did not come along belong to
        other tasks, and this dispatcher does not account for them.
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
            message.subs = ()  # A reference cycle would keep both in memory.
        ledger.deliver_fresh(messages, len(subs))
        self.lanes.push_each(subs)

    def _deliver_part(self, message: ShippedMessage) -> None:
        # A reference cycle would keep the message and its sub-messages in memory.
        subs, message.subs = message.subs, ()
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
        return self._others.finished(message, subs), self._others.outcome(message)

    def _let_in(self, message: Message, subs: Sequence[SubMessage], done: int) -> None:
        # Let the sub-messages into their lanes, except those whose bit is in ``done``.
        number = message.origin.stream
        queue = self.barrier_queues.get(number) if self.barrier_queues else None
        if subs and type(subs[0]) is Unsplit and message.left:
            message.ledger.reject(message)
        if self._sift is not None:
            done = self._sift(subs, done, self._leave)
        if number in self._shut:
            for sub in subs:
                if not done >> sub.index & 1:
                    self._leave(sub)
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
        """Deliver messages of one partition, in their order, that are one sub-message each.

        This is the default split: the message key is the sub-key. Messages that are not wanted are
        skipped.
        """
        ledger = self.ledgers[messages[0].origin.stream]
        if not self._is_plain(ledger, messages):
            for message in messages:
                if self.wants(message):
                    self.deliver(message, [SubMessage(message.key, message.value)])
            return
        subs = []
        keyed = True
        for message in messages:
            key = message.key
            keyed = keyed and key is not None
            sub = SubMessage(key, message.value)
            sub.message = message
            sub.index = 0
            message.sub_keys = (key,)
            message.left = 1
            message.size += WHOLE_BYTES
            subs.append(sub)
        ledger.deliver_fresh(messages, len(messages))
        if keyed:
            self.lanes.push_each(subs)
            return
        for sub in subs:
            self._push(sub)

    def _is_plain(self, ledger: Ledger, messages: Sequence[Message]) -> bool:
        """Return whether the messages can be delivered together, without a look at each.

        That is so if every sub-message enters the lane of its own sub-key, and none was finished
        before.
        """
        if self.barrier_queues or self._shut or self._lane_of or self._sift:
            return False
        if self._shared_below:
            first = messages[0]
            if first.offset < self._shared_below[first.origin.stream]:
                return False
        return ledger.fresh(messages)

    def wants(self, message: Message) -> bool:
        """Return whether a fetched message must be delivered. If not, note that it was passed."""
        offset = message.offset
        ledger = self.ledgers[message.origin.stream]
        # For most messages this answers without a second call.
        if ledger.position <= offset < ledger.end and not ledger.resumed:
            return True
        if ledger.wants(offset):
            return True
        ledger.reach(offset + 1)
        return False

    def skip_to(self, partition: int, position: int) -> None:
        """Note that no record below ``position`` is left to deliver.

        The offsets that this skips are holes, or belong to messages that were finished before.
        """
        ledger = self.ledgers[partition]
        ledger.reach(position)
        if position >= ledger.end and self.delivered:
            self.lanes.adjust(critical_share=CRITICAL_SHARE_READ)

    def finish(self, sub: SubMessage, outcome: Outcome = Outcome.DONE) -> None:
        """Finish a sub-message that was taken."""
        message = sub.message
        message.ledger.finish(message, sub.index, outcome)
        self.lanes.finish(sub)
        if self.barrier_queues:
            self._advance_barrier_queue(sub)

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        """Finish a sub-message as done, and take the next one.

        Workers do this for nearly every sub-message, and one call is faster than two.
        """
        message = sub.message
        message.ledger.finish(message, sub.index)
        if self.barrier_queues:
            self.lanes.finish(sub)
            self._advance_barrier_queue(sub)
            return self.lanes.take()
        return self.lanes.finish_and_take(sub)

    def next_rejected(self) -> Unsplit | None:
        """Take the next message that ``split`` rejected, so that its outcome can be decided.

        Returns None when there is none.
        """
        while self.rejected:
            unit = self.rejected.popleft()
            if unit.message.origin.stream not in self._shut:
                return unit
            self.lanes.finish(unit)  # An earlier message has parked the partition.
            self._leave(unit)
        return None

    def skip(self, sub: SubMessage, reason: str) -> None:
        """Finish a sub-message that the handler skips, and count it by its reason."""
        self.rule_filter.skipped(reason)
        self.finish(sub, Outcome.SKIPPED)

    def divert(self, sub: SubMessage, expression: str) -> None:
        """Finish a sub-message that ``--divert`` turned into a letter.

        It is counted by the expression that diverted it.
        """
        self.rule_filter.diverted(expression)
        self.finish(sub, Outcome.DEAD)

    def release(self, sub: SubMessage) -> None:
        """Make a delayed sub-message ready for its next attempt."""
        sub.attempt += 1
        self.lanes.release(sub)

    @property
    def parked_lanes(self) -> ParkedLanes:
        """The number of lanes that this run leaves parked, and the first of them by name."""
        return ParkedLanes(self.lanes.parked, tuple(self._named))

    @property
    def shut(self) -> list[ParkedLane]:
        """The partitions that this run parks behind a barrier or a message that split rejects."""
        partitions = {all_of(Stream(each).partition) for each in self._shut}
        return [each for each in self._named if each.key in partitions]

    def park(self, sub: SubMessage, error: str = "") -> None:
        """Leave a started sub-message pending in this run, and everything behind it in its lanes.

        ``error`` is the reason, as a text.
        """
        for key in self.lanes.park(sub):
            self._name(repr(key), sub, error)
        self._leave(sub)
        if isinstance(sub, Barrier):
            self._shut_behind(sub, error)

    def park_behind(self, sub: SubMessage, outcome: Outcome, error: str = "") -> None:
        """Finish a started sub-message, and leave pending what is behind it in its lanes.

        The lanes are written to the journal and the plan as parked, so that later runs do not
        continue them either. If nothing can be behind it, it is only finished.
        """
        if not isinstance(sub, Barrier) and not self._lanes_of(sub):
            self.finish(sub, outcome)
            return
        self.leaves_something = True
        message = sub.message
        message.ledger.finish(message, sub.index, outcome)
        if isinstance(sub, Barrier):
            self.lanes.park(sub)
            self._shut_behind(sub, error)
            self._note_parked(all_of(sub.message.partition))
            return
        for key in self.lanes.park(sub):
            self._note_parked(text := repr(key))
            self._name(text, sub, error)
        if self.barrier_queues:
            self._advance_barrier_queue(sub)

    def left_behind(self) -> set[str]:
        """Return the lanes that a dispatcher of later messages must not continue.

        It gets them as its argument ``parked``. They are the parked lanes, and those that still
        wait for a sub-message or a barrier whose turn has not come. Call this when nothing is left
        to do.
        """
        shut = (all_of(Stream(each).partition) for each in self._shut | self.barrier_queues.keys())
        return {*shut, *map(repr, self.lanes.keys if self._ordered else ())}

    def newly_parked(self) -> list[str]:
        """Return the lanes parked behind a dead letter since the last call, for the journal."""
        found, self._newly_parked = self._newly_parked, []
        return found

    def unhandled(self) -> Unhandled:
        """Return the counts of what finished without being handled, over all runs."""
        return self.rule_filter.unhandled()

    def progress(self) -> dict[int, Progress]:
        """Return by partition all that is finished here, for the plan's claim "all"."""
        return {number: ledger.progress() for number, ledger in self.ledgers.items()}

    @property
    def watermarks(self) -> dict[int, int]:
        """The offset that is safe to commit, by partition."""
        return {number: ledger.watermark for number, ledger in self.ledgers.items()}

    @property
    def holders(self) -> dict[int, int]:
        """The offsets of the messages that hold a watermark back, by number of the ledger."""
        return {
            number: ledger.watermark
            for number, ledger in self.ledgers.items()
            if ledger.first_pending is not None
        }

    def held_back(self, number: int) -> Place | None:
        """Return in which lane the message waits that holds the watermark of a ledger back.

        The lane comes with the place of the message there. Returns None if no lane is
        known, as for a message that a later run handles. This takes time in proportion to the
        lanes of the message, so it is called only while a watermark stands.
        """
        ledger = self.ledgers[number]
        if (message := ledger.first_pending) is None:
            return None
        if self._lane_of is not None or (keys := ledger.unfinished_keys) is None:
            return self.lanes.place_of(message, None)
        each = (key if isinstance(key, SubKeys) else (key,) for key in keys)
        return self.lanes.place_of(message, chain.from_iterable(each))

    def claims(self) -> Claims:
        """Return the claims for the plan: this progress, and other claims that add to it."""
        own = self.progress()
        if self._others is None:
            return {ALL: own}
        # In a partition that was added to the topic later, another claim has what this one has.
        added = {n: Progress(own[n].watermark) for n in own.keys() - self._others.partitions}
        ahead = ahead_of(self._others.claims, own)
        return {ALL: own, **{selector: {**claim, **added} for selector, claim in ahead.items()}}

    def record(self) -> Record | None:
        """Return what happened since the last call, for the journal; None if nothing finished."""
        if not (changes := self.changes()):
            return None
        unhandled = self.unhandled() or None
        return Record(changes, tuple(self.newly_parked()), unhandled, self.claim)

    def changes(self) -> dict[int, Progress]:
        """Return what has finished since the last call, by partition, for the journal."""
        found = {}
        for number, ledger in self._changing.items():
            if (changes := ledger.changes()) is not None:
                found[number] = changes
        for number in found:
            if self.ledgers[number].complete:  # It will not change any more.
                del self._changing[number]
        return found

    def messages_passed(self, number: int) -> int:
        """Return how many messages of a partition all runs so far have finished."""
        return self.ledgers[number].messages_finished

    def subs_finished(self, number: int) -> int:
        """Return how many sub-messages of a partition all runs so far have finished."""
        return self.ledgers[number].tally()[1].finished

    def complete_status(
        self, status: Status, plan: OffsetPlan, failures: FailureSettings
    ) -> Status:
        """Add the barriers, and what rules and the handler skipped, to the status of a run.

        If the run is only a part of the drain, what is known of the rest is added, too.
        """
        rules = replace(self.rule_filter.status(), barriers=self.barriers_begun)
        return replace(status, rules=rules)

    def unread(self) -> str:
        """Return a text that names the offsets that this run does not read; empty for none."""
        return ""

    def remainder(self) -> Remainder:
        """Estimate what is left, from what was delivered in this run."""
        left_pending, taken_out = self.load.left_pending_subs, self.rule_filter.taken_out
        read, subs = sum(each.subs_read for each in self.ledgers.values()), self.tally()[1]
        return Remainder.of(
            self._samples(),
            handled=subs.finished - taken_out,
            waiting=subs.pending - left_pending,
            share=(read - taken_out - left_pending) / read if read else 1.0,
        )

    def _samples(self) -> Mapping[int, ReadSample]:
        below = self._shared_below
        return {number: each.sample(below.get(number, 0)) for number, each in self.ledgers.items()}

    def tally(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages over all ledgers."""
        return _summed(ledger.tally() for ledger in self.ledgers.values())

    def counts(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages over all ledgers, the pending ones one by one.

        The law of conservation is checked on these counts (see ``Ledger.counts``).
        """
        return _summed(ledger.counts() for ledger in self.ledgers.values())

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
        # Everything of the barrier's partition that is not in a lane yet is behind the barrier.
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
            self.lanes.push(sub, lane_of(sub))
        elif len(sub.keys) == 1:
            self.lanes.push(sub, sub.keys[0])
        else:
            self.lanes.push_to_all(sub, sub.keys)

    def _advance_barrier_queue(self, sub: SubMessage) -> None:
        # Let the barrier queue of the finished sub-message's partition go on, if there is one.
        number = sub.message.origin.stream
        queue = self.barrier_queues.get(number)
        if queue is not None:
            if isinstance(sub, Unsplit):
                queue.undecided -= 1
            elif isinstance(sub, Barrier):
                queue.running = False
            self._open(number, queue)

    def _open(self, number: int, queue: BarrierQueue) -> None:
        # Let through what no barrier holds back any more.
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
            if sub.message.partition in self._behind:
                # Another task has left something pending that this barrier waits for.
                self.lanes.parked += 1
                self._shut_behind(sub, "something before this barrier is left pending")
                return
            first = self.ledgers[sub.message.origin.stream].first_pending
            if first is not sub.message or not _is_next(sub):
                return
            queue.running = True
            self.barriers_begun += 1
            self.lanes.push_alone(waiting.popleft())
        if not waiting and not queue.running and not queue.undecided:
            del self.barrier_queues[number]


def _summed(accounts: Iterable[tuple[Counts, Counts]]) -> tuple[Counts, Counts]:
    pairs = list(accounts)
    return Counts.sum(messages for messages, _ in pairs), Counts.sum(subs for _, subs in pairs)


def _are_plain(subs: Sequence[SubMessage]) -> bool:
    # Return whether the lane of each sub-message is its ``key``, and none is a barrier.
    plain = set(map(type, subs)) == {SubMessage} and not any(map(_SUB_KEYS, subs))
    return plain and None not in map(_SUB_KEY, subs)


def _is_next(sub: SubMessage) -> bool:
    # Return whether everything before a sub-message in its message is finished. Rules may have
    # finished something behind it, too.
    before = (1 << sub.index) - 1
    if isinstance(sub.message, ShippedMessage):
        before &= sub.message.own
    part = sub.message.part
    return not before or (part is not None and (part.bits | part.by_others) & before == before)


def all_of(partition: int) -> str:
    """Return the name for all lanes of a partition in a plan. No repr of a key looks like it."""
    return f"partition {partition}"
