"""KPipe's five invariants of offsets, on drainer's ledger under any order of events.

Source: eschizoid/kpipe, ``docs/OFFSET-INVARIANTS.md`` and ``OffsetInvariantPropertyTest.java``,
https://github.com/eschizoid/kpipe/blob/main/docs/OFFSET-INVARIANTS.md

An offset is *tracked* once its processing begins, and *marked* once it has reached a state that
lasts. The *commit point* is what would be committed now; in drainer, the watermark.

- I1: the commit point is the lowest offset that is tracked and not marked, if there is one.
- I2: an offset that is tracked and not marked never counts as committed.
- I3: nothing is lost. The commit point passes marked offsets only, and comes behind the last of
  them when all are marked. What failed is marked once it is in the dead-letter topic, and not
  before: while that topic is away, the commit point stands still.
- I4: when a partition is revoked, the commit point of before is committed, and nothing of the old
  assignment is left.
- I5: a mark that comes after that raises no error, and changes no commit point.

Three things differ on purpose. drainer tracks offsets in rising order only, and passes holes, so
that its commit point comes to the end of a backlog that ends on a hole, where KPipe's stays behind
the last record. It has no rebalances: its counterpart of a revocation is the plan that one run
leaves to the next, which begins at the commit point and not at nothing. And it also keeps what is
marked above the commit point, which the next run is not given again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.messages import is_finished, message_at, written_and_read
from drainer.core.ledger import Ledger
from drainer.errors import DeadLetterNotWritten
from drainer.message import Message, SubMessage
from drainer.model.progress import DONE, Outcome, Progress
from drainer.model.settings import FailureSettings, OnFailure
from engine.made_up_kafka import OnTheLoop, VirtualDrains, handler_of, in_lanes

END = 60
OUTCOMES = [DONE, DONE, Outcome.DEAD, Outcome.SKIPPED]


class Offsets(RuleBasedStateMachine):
    """Messages of one partition that are tracked and marked, by one run after the other."""

    kind: ClassVar[type[Ledger]] = Ledger

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        self.ledger = self.kind(start, END)
        self.start = start
        self.pending: dict[int, tuple[Message, list[int]]] = {}  # with what of it is to be marked
        self.split: dict[int, int] = {}  # of each offset that there is, the sub-messages
        self.marked: set[int] = set()
        self.revoked: list[tuple[Ledger, Message, int]] = []

    @rule(gap=st.sampled_from([0, 0, 0, 1, 3]), count=st.integers(0, 3))
    def track(self, gap: int, count: int) -> None:
        offset = self.ledger.position
        known = [each for each in self.split if each >= offset]
        if known:  # A run before was given it, too.
            offset, count = min(known), self.split[min(known)]
        else:
            offset += gap
        if offset >= END:
            return
        self.split[offset] = count
        if not self.ledger.wants(offset):
            assert offset in self.marked
            self.ledger.reach(offset + 1)
            return
        message = message_at(offset)
        done = self.ledger.deliver(message, ("k",) * count, 1)
        left = [index for index in range(count) if not done >> index & 1]
        if left:
            self.pending[offset] = message, left
        else:
            self.marked.add(offset)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def mark(self, data: st.DataObject, outcome: Outcome) -> None:
        offset = data.draw(st.sampled_from(sorted(self.pending)))
        message, left = self.pending[offset]
        self.ledger.finish(message, left.pop(), outcome)
        if not left:
            del self.pending[offset]
            self.marked.add(offset)

    @rule()
    def revoke(self) -> None:
        """I4: a run ends, and another one begins with its plan."""
        old, before = self.ledger, self.ledger.watermark
        written = written_and_read(old.progress())
        assert written.watermark == before
        self.ledger = self.kind(self.start, END, written)
        assert self.ledger.watermark == before
        assert (self.ledger.first_pending, self.ledger.pending_bytes) == (None, 0)
        self.revoked += [
            (old, message, left[0]) for message, left in self.pending.values() if len(left) == 1
        ]
        for offset in self.split:
            assert self.ledger.wants(offset) == (offset >= before and offset not in self.marked)
        self.pending.clear()

    @precondition(lambda self: self.revoked)
    @rule(data=st.data())
    def mark_late(self, data: st.DataObject) -> None:
        """I5: a call of a run that has ended comes back."""
        number = data.draw(st.integers(0, len(self.revoked) - 1))
        old, message, index = self.revoked.pop(number)
        before = self.ledger.progress()
        old.finish(message, index)
        assert self.ledger.progress() == before

    @invariant()
    def the_commit_point_is_the_lowest_pending(self) -> None:
        """I1, and I3 when nothing is pending."""
        commit_point = self.ledger.watermark
        if self.pending:
            assert commit_point == min(self.pending)
        else:
            assert commit_point == self.ledger.position
            assert commit_point > max(self.marked, default=-1) or self._to_be_passed()

    @invariant()
    def nothing_that_is_pending_counts_as_finished(self) -> None:
        """I2, of the commit point and of all that a plan holds."""
        written = self.ledger.progress()
        for offset in self.pending:
            assert self.ledger.watermark <= offset
            assert not is_finished(written, offset)

    @invariant()
    def nothing_is_lost(self) -> None:
        """I3: whatever was given to any run is marked, or to be given or marked by this one."""
        for offset in self.split:
            comes_again = offset >= self.ledger.position
            assert offset in self.marked or offset in self.pending or comes_again
            assert offset in self.marked or self.ledger.watermark <= offset

    def _to_be_passed(self) -> bool:
        """Whether something marked by a run before is not come to again yet."""
        return any(offset >= self.ledger.position for offset in self.marked)


def explore(machine: type[Offsets], **more: Any) -> None:
    run_state_machine_as_test(
        machine, settings=settings(stateful_step_count=40, print_blob=True, **more)
    )


def test_the_ledger_keeps_all_five() -> None:
    explore(Offsets, max_examples=settings().max_examples // 2)


# --- sabotage ---


class PassesGaps(Ledger):
    """Commits behind the highest that is marked (I1)."""

    def finish(self, message: Message, index: int, outcome: Outcome = DONE) -> None:
        super().finish(message, index, outcome)
        if not message.left:
            self.watermark = max(self.watermark, message.offset + 1)


class CommitsAhead(Ledger):
    """Commits what it was given, before it is marked (I2)."""

    def deliver(self, message: Message, *more: Any, **named: Any) -> int:
        done = super().deliver(message, *more, **named)
        self.watermark = max(self.watermark, message.offset + 1)
        return done


class ClaimsTooMuch(Ledger):
    """Writes into the plan that what is pending is finished (I2)."""

    def progress(self) -> Progress:
        written = super().progress()
        if self.first_pending is None:
            return written
        return replace(written, finished=((self.watermark, self.position),))


class LosesOne(Ledger):
    """Passes over the first that is new to a run (I3)."""

    def wants(self, offset: int) -> bool:
        return super().wants(offset) and not (self.messages_read == 0 and offset % 7 == 3)


class CommitsMoreAtTheEnd(Ledger):
    """Gives up what is pending when it is revoked (I4)."""

    def progress(self) -> Progress:
        return replace(super().progress(), watermark=self.position, finished=(), partial={})


class CommitsLess(Ledger):
    """Forgets the commit point when it is revoked (I4)."""

    def progress(self) -> Progress:
        return replace(super().progress(), watermark=0)


class HearsTheDead(Ledger):
    """What one of them finishes counts in the one that came after it (I5)."""

    last: ClassVar[Ledger | None] = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        HearsTheDead.last = self

    def finish(self, message: Message, index: int, outcome: Outcome = DONE) -> None:
        super().finish(message, index, outcome)
        if HearsTheDead.last is not self and HearsTheDead.last is not None:
            HearsTheDead.last.reach(message.offset + 1)
            HearsTheDead.last.watermark = message.offset + 1


@pytest.mark.parametrize(
    "bad",
    [
        PassesGaps,
        CommitsAhead,
        ClaimsTooMuch,
        LosesOne,
        CommitsMoreAtTheEnd,
        CommitsLess,
        HearsTheDead,
    ],
)
def test_a_ledger_that_breaks_one_is_found_out(bad: type[Ledger]) -> None:
    class Sabotaged(Offsets):
        kind = bad

    with pytest.raises(AssertionError):
        explore(Sabotaged, phases=[Phase.generate], derandomize=True, max_examples=50)


# --- the rule of states that last, with a dead-letter topic ---

BAD = 5
DEAD = FailureSettings(
    retries=0, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead", retry_delay_s=0.001
)


def all_but_one(sub: SubMessage) -> None:
    if sub.message.offset == BAD:
        raise ValueError("no good")


def test_while_the_dead_letter_topic_is_away_the_commit_point_stands_still(
    virtual: VirtualDrains,
) -> None:
    """I3. The others go on behind it, and all is committed once the letter is there."""
    rehearsal = virtual.rehearsal(in_lanes(100), failures=DEAD)
    rehearsal.letters.keeps_silent = True
    handler = handler_of(OnTheLoop, all_but_one)
    committed: list[int] = []

    def answer_when_nothing_else_is_left(status: object) -> None:
        if len(handler.account.finished) == 99 and rehearsal.letters.unanswered:
            committed.append(rehearsal.group.committed[0] or 0)
            if len(committed) == 5:
                rehearsal.letters.answer()

    rehearsal.observe = answer_when_nothing_else_is_left
    assert rehearsal.drain(handler).exit_code == 6
    assert set(committed[1:]) == {BAD}
    assert rehearsal.group.committed == {0: 100}


def test_what_is_in_no_lasting_state_comes_again(virtual: VirtualDrains) -> None:
    """I3: neither handled nor in the dead-letter topic, it is not marked, and the resume has it."""
    rehearsal = virtual.rehearsal(in_lanes(100), failures=DEAD)
    rehearsal.letters.failure = DeadLetterNotWritten("the topic is away", hint="wait")
    assert rehearsal.drain(handler_of(OnTheLoop, all_but_one)).exit_code == 4
    assert rehearsal.group.committed == {0: BAD}

    rehearsal.letters.failure = None
    handler = handler_of(OnTheLoop, all_but_one)
    assert rehearsal.drain(handler).exit_code == 6
    assert handler.account.failed == [(0, BAD, 0)]
    assert rehearsal.group.committed == {0: 100}
