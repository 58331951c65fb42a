"""The ledger: the account of one partition.

Offsets have holes, so the ledger counts the messages that were delivered, and never offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from drainer.core.remainder import ReadSample
from drainer.message import AnyKeys, KeySums, Message
from drainer.model.progress import (
    DONE,
    OTHERWISE,
    Counts,
    Outcome,
    Partial,
    Progress,
    checksum_keys,
    merge_outcomes,
    outcome_of,
)
from drainer.model.ranges import Range, RangeSet, join_ranges, ranges_of

# Messages that have finished inside the queue of pending ones are removed together, once there are
# too many of them. They are too many if their number is above PURGE_MIN plus half of the queue's
# length, or their bytes are above a quarter of the pending bytes plus the ledger's equal share of
# PURGE_BYTES_MIN.
PURGE_MIN = 64
PURGE_BYTES_MIN = 1024 * 1024
# The memory of a message whose content was let go of, so that only its account is kept. Each of its
# sub-keys takes the second number, in addition to the text of the key.
LEFT_PENDING_BYTES = 700
LEFT_PENDING_KEY_BYTES = 100


class PartialMessage:
    """The finished sub-messages of a message that is finished in part.

    It has the attributes of a ``Partial``, but it can change. The journal reads it without a copy,
    because a copy for each record would cost a tenth of the drain's speed.
    """

    __slots__ = (
        *("_checksum", "_head", "bits", "by_others", "changed"),
        *("keys", "left_pending", "outcome", "unsplit"),
    )

    def __init__(self, keys: AnyKeys) -> None:
        self.keys = keys
        self.bits = 0
        # The bits of sub-messages that belong to other accounts. They are not finished here, and
        # no record of this ledger has them.
        self.by_others = 0
        self.changed = False  # Whether it has changed since the journal's last record.
        self.outcome = DONE  # The worst outcome of the sub-messages that are finished.
        self.left_pending = 0  # Pending sub-messages that are not handled in this run.
        self.unsplit = False  # Whether the message is one unit, because ``split`` rejected it.
        # Most messages are never recorded, so these are made when they are needed.
        self._checksum: int | None = None
        self._head: str | None = None

    def record(self) -> Partial:
        """Return an immutable copy for the plan."""
        if self._checksum is None:
            self._checksum = checksum_keys(self.keys)
        return Partial(len(self.keys), self._checksum, self.bits)

    def encode(self) -> str:
        """Return the text that ``Partial.encode`` would give."""
        head = self._head
        if head is None:
            head = self._head = self.record().head
        return f"{head}{self.bits:x}"


class LedgerLoad:
    """Sums over all ledgers of one drain.

    The ledgers keep them up to date, because a task on Spark has thousands of ledgers, and adding
    them up would take too long.
    """

    __slots__ = ("left_pending", "left_pending_subs", "pending_bytes", "purge_bytes")

    def __init__(self, ledgers: int = 1) -> None:
        # The estimated memory of messages that were delivered and are not finished.
        self.pending_bytes = 0
        # Messages whose unfinished sub-messages all stay pending in this run.
        self.left_pending = 0
        # Sub-messages that stay pending in this run.
        self.left_pending_subs = 0
        # The bytes of finished messages that each queue may keep.
        self.purge_bytes = PURGE_BYTES_MIN // max(1, ledgers)


class Ledger:
    """The account of one partition's backlog: what was delivered, what is finished and pending.

    ``watermark`` is the offset that is safe to commit. The ledger takes memory only for what is
    pending: it knows the finished messages above the watermark as the gaps between pending ones.

    ``known`` is what earlier runs have finished. Messages that they finished are not delivered
    again. Of a message that they finished in part, only the other sub-messages are handled.

    A ledger that ``reports_outcomes`` reports the outcome of each message, not only of those that
    are finished in part. That is needed where the claims of several ledgers are added up.

    The end of a ledger that ``follows`` moves with the log. Until it is final, nothing is complete.
    """

    def __init__(
        self,
        start: int,
        end: int,
        known: Progress | None = None,
        *,
        reports_outcomes: bool = False,
        follows: bool = False,
    ) -> None:
        known = known or Progress(start)
        self.end = end
        self.follows = follows
        self.position = known.watermark  # Everything below was delivered, or is a hole.
        self.watermark = known.watermark
        self.pending_bytes = 0
        # The part of ``pending_bytes`` that stays until the end of the run.
        self.left_pending_bytes = 0
        self.load = LedgerLoad()  # A dispatcher replaces it by the sums over all its ledgers.
        # Unfinished messages by offset. Finished ones inside the queue are removed later.
        self._pending: deque[Message] = deque()
        self._finished_inside = self._bytes_inside = 0
        self.resumed = bool(known.finished)
        self._before = known.watermark, known.finished  # The progress of earlier runs.
        self._earlier = RangeSet(known.finished)
        self._partial_below = max(known.partial, default=-1) + 1
        self._earlier_partial = dict(known.partial)
        # Sub-messages of delivered messages that an earlier run, or another claim, has finished.
        self._subs_before = self._subs_by_others = 0
        self._changed_finished: list[int] = []
        self._changed_partial: list[Message] = []
        self._recorded = known.watermark  # The last watermark that changes() returned.
        self._reports_outcomes = reports_outcomes
        self._outcomes: dict[Outcome, list[int]] = {outcome: [] for outcome in Outcome}
        self._earlier_outcomes = {outcome: RangeSet(at) for outcome, at in known.outcomes.items()}
        self.messages_read = self.messages_done = self.subs_read = self.subs_done = 0
        self.subs_unsplit = 0  # Finished units of messages that ``split`` rejected.
        self.messages_otherwise = dict.fromkeys(OTHERWISE, 0)
        self.subs_otherwise = dict.fromkeys(OTHERWISE, 0)
        self._base_messages = known.messages.without_pending()
        self._base_subs = known.sub_messages.without_pending()

    @property
    def complete(self) -> bool:
        """Whether everything below the end is finished, or is a hole, and the end is final."""
        return self.watermark >= self.end and not self.follows

    @property
    def delivered(self) -> bool:
        """Whether nothing of the backlog remains to be fetched."""
        return self.position >= self.end

    @property
    def moving_bytes(self) -> int:
        """The bytes that this run will free.

        A partition with many of them need not be read further until that has happened.
        """
        return self.pending_bytes - self.left_pending_bytes

    @property
    def first_pending(self) -> Message | None:
        """The unfinished message with the lowest offset."""
        return self._pending[0] if self._pending else None

    @property
    def unfinished_keys(self) -> list[Hashable] | None:
        """The sub-keys of the first pending message that are not finished.

        None if only their checksum is known.
        """
        message = self._pending[0]
        if isinstance(message.sub_keys, KeySums):
            return None
        done = 0 if message.part is None else message.part.bits | message.part.by_others
        return [key for n, key in enumerate(message.sub_keys) if not done >> n & 1]

    def wants(self, offset: int) -> bool:
        """Return whether a fetched message must be delivered: it is new, and not finished."""
        return self.position <= offset < self.end and not (self.resumed and offset in self._earlier)

    def deliver(
        self,
        message: Message,
        keys: AnyKeys,
        size: int,
        by_others: int = 0,
        outcome: Outcome = DONE,
        own: int = 0,
    ) -> int:
        """Open the account of a message that splits into one sub-message per key.

        Returns the bits of the sub-messages that need not be handled: those that an earlier run
        finished, and those in ``by_others``.

        Args:
            message: the next message, in rising order of offset.
            keys: the sub-key of each of its sub-messages.
            size: its bytes, for ``pending_bytes``.
            by_others: the bits of sub-messages that belong to other accounts. The message does not
                wait for them.
            outcome: the worst outcome of the sub-messages in ``by_others``.
            own: the bits of this account's sub-messages if the message came without the others; 0
                if it came with all.

        Raises SplitFailed when an earlier run finished a part of the message and saw other keys.
        In that case, the ledger is unchanged.
        """
        offset = message.offset
        done = 0
        left = own.bit_count() if own else len(keys)
        message.sub_keys = keys
        message.part = None
        if self._earlier_partial and offset in self._earlier_partial:
            done = self._recall(message)
            outcome = outcome.worse_of(message.part.outcome)
            before = (done & own if own else done).bit_count()
            self._subs_before += before
            left -= before
        if by_others:
            by_others &= ~done
            left -= by_others.bit_count()
            self._subs_by_others += by_others.bit_count()
            done |= by_others
            if left:  # A message that is finished needs no record of its parts.
                part = message.part or self._begin_part(message)
                part.by_others, part.outcome = by_others, outcome
        message.ledger = self
        message.left = left
        message.size = size
        self.position = offset + 1
        self.messages_read += 1
        self.subs_read += left
        if left:
            if not self._pending:
                self.watermark = offset  # Offsets that were not delivered before it are holes.
            self._pending.append(message)
            self.pending_bytes += size
            self.load.pending_bytes += size
        else:
            self._count(outcome)
            if self._pending:
                self._changed_finished.append(offset)
            else:
                self.watermark = offset + 1
        return done

    def deliver_fresh(self, messages: Sequence[Message], subs: int) -> None:
        """Deliver messages that are all ``fresh``. Their ``left``, sizes and keys are set already.

        ``subs`` is the number of their sub-messages.
        """
        size = 0
        for message in messages:
            message.ledger = self
            message.part = None
            size += message.size
        if not self._pending:
            self.watermark = messages[0].offset
        self._pending.extend(messages)
        self.position = messages[-1].offset + 1
        self.messages_read += len(messages)
        self.subs_read += subs
        self.pending_bytes += size
        self.load.pending_bytes += size

    def fresh(self, messages: Sequence[Message]) -> bool:
        """Return whether all of these messages are wanted, and none was finished in part before.

        They are in rising order of offset.
        """
        return (
            self.position <= messages[0].offset
            and messages[-1].offset < self.end
            and not self.resumed
            and not self._earlier_partial
        )

    def reach(self, position: int) -> None:
        """Note that nothing below ``position`` remains to be delivered. Skipped offsets are holes.

        A position past the end counts as the end.
        """
        self.position = max(self.position, min(position, self.end))
        if not self._pending:
            self.watermark = self.position

    def finish(self, message: Message, index: int, outcome: Outcome = DONE) -> None:
        """Finish one sub-message of a delivered message."""
        left = message.left = message.left - 1
        if outcome is DONE:
            self.subs_done += 1
        else:
            self._finish_otherwise(message, outcome)
        if left:
            part = message.part or self._begin_part(message)
            part.bits |= 1 << index
            if not part.changed:
                part.changed = True
                self._changed_partial.append(message)
            if part.left_pending == left:
                self._let_go(message)
            return
        part = message.part
        if part is None or part.outcome is DONE:
            self.messages_done += 1
        else:
            self._count(part.outcome)
        size = message.size
        self.pending_bytes -= size
        self.load.pending_bytes -= size
        pending = self._pending
        if pending[0] is message:
            pending.popleft()
            while self._finished_inside and not pending[0].left:
                self._bytes_inside -= pending.popleft().size
                self._finished_inside -= 1
            self.watermark = pending[0].offset if pending else self.position
        else:
            self._changed_finished.append(message.offset)
            self._finished_inside += 1
            self._bytes_inside += size
        # With fewer pending messages, fewer finished ones may stay among them.
        if self._finished_inside and (
            self._finished_inside > PURGE_MIN + len(pending) // 2
            or self._bytes_inside > self.load.purge_bytes + self.pending_bytes // 4
        ):
            self._pending = deque(m for m in pending if m.left)
            self._finished_inside = self._bytes_inside = 0

    def reject(self, message: Message) -> None:
        """Note that a delivered message is one unit, because ``split`` rejected it."""
        (message.part or self._begin_part(message)).unsplit = True

    def leave_pending(self, message: Message) -> None:
        """Note that one more sub-message of a message stays pending in this run.

        When no other sub-message is left to be handled, the message lets go of its content.
        """
        part = message.part or self._begin_part(message)
        part.left_pending += 1
        self.load.left_pending_subs += 1
        if part.left_pending == message.left:
            self._let_go(message)

    def tally(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages. Those that were read and did not finish are pending."""
        return self._counts(
            self.messages_read - self.messages_done - sum(self.messages_otherwise.values()),
            self.subs_read - self.subs_done - sum(self.subs_otherwise.values()),
        )

    def sample(self, shared_below: int | None = None) -> ReadSample:
        """Return a sample of what this run has read, for an estimate of the rest.

        ``shared_below`` is the offset below which other claims may have finished sub-messages. If
        it is None, the sample leaves out what they have finished.
        """
        (start, before), finished, below = self._before, self._subs_before, self._partial_below
        if shared_below is not None:
            finished += self._subs_by_others
            below = max(below, shared_below)
        bounds = start, self.position, self.end
        return ReadSample.of(bounds, before, self.subs_read + finished, finished, below)

    @property
    def messages_finished(self) -> int:
        """The number of messages that all runs so far have finished."""
        here = self.messages_done + sum(self.messages_otherwise.values())
        return self._base_messages.read + here

    def counts(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages as ``tally`` does, but count the pending ones one by one.

        The law of conservation is checked on these counts. Those of ``tally`` fulfil it by
        definition. This takes time in proportion to what is pending.
        """
        pending = [message.left for message in self._pending if message.left]
        return self._counts(len(pending), sum(pending))

    def progress(self) -> Progress:
        """Return all that is finished, for the plan.

        This takes time in proportion to what is pending.
        """
        ranges: list[Range] = []
        partial: dict[int, Partial] = {}
        outcomes: dict[Outcome, list[int]] = {outcome: [] for outcome in OTHERWISE}
        behind = self.watermark
        pending = subs = 0
        for message in self._pending:
            if not message.left:
                continue
            pending += 1
            subs += message.left
            offset = message.offset
            if offset > behind:
                ranges.append((behind, offset))
            behind = offset + 1
            if message.part is not None and message.part.bits:
                partial[offset] = message.part.record()
                if message.part.outcome is not DONE:
                    outcomes[message.part.outcome].append(offset)
        if pending and self.position > behind:
            ranges.append((behind, self.position))
        ranges.extend(self._earlier.from_offset(self.position))
        if self._earlier_partial:
            position = self.position
            partial.update((o, p) for o, p in self._earlier_partial.items() if o >= position)
        here = {outcome: ranges_of(offsets) for outcome, offsets in outcomes.items()}
        behind = self.position
        ahead = {o: tuple(at.from_offset(behind)) for o, at in self._earlier_outcomes.items()}
        return Progress(
            self.watermark,
            join_ranges(ranges),
            partial,
            *self._counts(pending, subs),
            merge_outcomes((here, ahead)),
        )

    def changes(self) -> Progress | None:
        """Return what has finished since the last call, for the journal; None if nothing has.

        The progress at the last call, merged with this, is the progress now. The result must be
        written at once, because its partial messages change as their sub-messages finish.
        """
        if self._changed_finished or self._changed_partial:
            watermark = self.watermark
            finished = [offset for offset in self._changed_finished if offset >= watermark]
            partial = {m.offset: m.part for m in self._changed_partial if m.left}
            for message in self._changed_partial:
                message.part.changed = False
            self._changed_finished.clear()
            self._changed_partial.clear()
        elif self._recorded == self.watermark:
            return None
        else:
            finished, partial = [], {}
        self._recorded = self.watermark
        outcomes = {outcome: ranges_of(at) for outcome, at in self._outcomes.items() if at}
        for offsets in self._outcomes.values():
            offsets.clear()
        return Progress(self.watermark, ranges_of(finished), partial, *self.tally(), outcomes)

    def _counts(self, messages: int, subs: int) -> tuple[Counts, Counts]:
        return (
            self._base_messages.and_here(
                self.messages_read, self.messages_done, self.messages_otherwise, messages
            ),
            self._base_subs.and_here(
                self.subs_read, self.subs_done, self.subs_otherwise, subs, self.subs_unsplit
            ),
        )

    def _count(self, outcome: Outcome) -> None:
        if outcome is DONE:
            self.messages_done += 1
        else:
            self.messages_otherwise[outcome] += 1

    @staticmethod
    def _begin_part(message: Message) -> PartialMessage:
        part = message.part = PartialMessage(message.sub_keys)
        return part

    def _let_go(self, message: Message) -> None:
        self.load.left_pending += 1
        before = message.size
        keys = message.sub_keys
        kept = LEFT_PENDING_BYTES
        if not isinstance(keys, KeySums):
            kept += LEFT_PENDING_KEY_BYTES * len(keys) + len(repr(keys))
        message.size = min(before, kept)
        self.left_pending_bytes += message.size
        self.pending_bytes += message.size - before
        self.load.pending_bytes += message.size - before
        message.let_go()

    def _finish_otherwise(self, message: Message, outcome: Outcome) -> None:
        part = message.part or self._begin_part(message)
        # Once all of a message is finished, the counts of messages have its outcome.
        if message.left or self._reports_outcomes:
            self._outcomes[outcome].append(message.offset)
            if part.unsplit:
                self._outcomes[Outcome.UNSPLIT].append(message.offset)
        self.subs_unsplit += part.unsplit and outcome is not Outcome.SKIPPED
        self.subs_otherwise[outcome] += 1
        part.outcome = part.outcome.worse_of(outcome)

    def _recall(self, message: Message) -> int:
        known = self._earlier_partial[message.offset]
        finished = known.finished_of(message, message.sub_keys)
        part = message.part = PartialMessage(KeySums(known.count, known.checksum))
        del self._earlier_partial[message.offset]
        part.bits = known.bits
        part.outcome = outcome_of(message.offset, self._earlier_outcomes)
        return finished
