"""Rules and classes: expressions that select sub-messages when they are delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from drainer.errors import BadExpression, raised_as
from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.facts import Facts, Undecided
from drainer.model.plan import OffsetPlan
from drainer.model.predicate import Predicate
from drainer.model.progress import Outcome
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.policy.redrive import LeftAlone, Redriven

REASONS_MOST = 50  # Further reasons to skip are counted together.
OTHER_REASONS = "other reasons"


@dataclass(eq=False)
class RuleFilter:
    """Decides which delivered sub-messages enter a lane, and counts those that are not handled.

    Every reason to skip a sub-message before it enters a lane is a branch of ``rule_for``. One
    such reason is an expression of ``--skip``.

    Raises BadExpression when one of the expressions can't be understood.

    Attributes:
        expressions: the rules.
        earlier: what was counted in earlier runs.
        selects: a sub-message for which this is false stays pending in this run.
        passes_all: whether every sub-message enters a lane. The dispatcher asks once, and then
            never calls ``sift``.
        taken_out: how many sub-messages were skipped in this run before they entered a lane.
        undecided, why_undecided: for each rule, how many sub-messages it could not decide on in
            this run, and the first reason.
    """

    expressions: Iterable[str] = ()
    earlier: Unhandled | None = None
    selects: Callable[[SubMessage], bool] | None = None

    def __post_init__(self) -> None:
        with raised_as(BadExpression, about="--skip: "):
            self._rules = [(text, Predicate(text)) for text in self.expressions]
        self.passes_all = not self._rules and self.selects is None
        self.taken_out = 0
        earlier = self.earlier or Unhandled()
        self.skipped_by = Counter(earlier.skipped_by)
        self.skipped_for = Counter(earlier.skipped_for)
        self.diverted_by = Counter(earlier.diverted_by)
        self.undecided: Counter[str] = Counter()
        self.why_undecided: dict[str, str] = {}

    @classmethod
    def of(cls, plan: OffsetPlan, selects: Callable[[SubMessage], bool] | None) -> RuleFilter:
        """Return the filter of a run that goes on from a plan."""
        return cls(plan.terms.failures.skip, plan.account.unhandled, selects)

    def rule_for(self, sub: SubMessage) -> str | None:
        """Return the rule that skips a sub-message, as a user typed it; None if no rule does.

        A further reason to skip is one more branch here, and one more condition of ``passes_all``.
        What this returns is counted in ``skipped_by``, as work that the handler never sees.
        """
        if isinstance(sub, Redriven):
            sub = sub.original
        facts: Facts | None = None
        for text, predicate in self._rules:
            facts = facts or Facts(sub)
            try:
                if predicate.matches(sub, facts):
                    return text
            except Undecided as reason:
                self.undecided[text] += 1
                self.why_undecided.setdefault(text, str(reason))
        return None

    def sift(
        self, subs: Sequence[SubMessage], done: int, leave: Callable[[SubMessage], None]
    ) -> int:
        """Decide which sub-messages of a delivered message do not enter a lane; return their bits.

        A sub-message that is skipped is finished here. One that stays pending in this run is passed
        to ``leave``. ``done`` has the bits of sub-messages that are finished already; the result
        has them, too.
        """
        for sub in subs:
            bit = 1 << sub.index
            if done & bit:
                continue
            if self.selects is not None and not self.selects(sub):
                leave(sub)
            else:
                if isinstance(sub, LeftAlone):  # No run would give it to the handler.
                    self.skipped(sub.payload)
                elif (rule := self.rule_for(sub)) is None:
                    continue
                else:
                    self.skipped_by[rule] += 1
                self.taken_out += 1
                sub.message.ledger.finish(sub.message, sub.index, Outcome.SKIPPED)
            done |= bit
        return done

    def skipped(self, reason: str) -> None:
        """Count a sub-message that the handler, or a redrive, skips for this reason."""
        if reason not in self.skipped_for and len(self.skipped_for) >= REASONS_MOST:
            reason = OTHER_REASONS
        self.skipped_for[reason] += 1

    def diverted(self, expression: str) -> None:
        """Count a dead letter that ``--divert`` made by this expression."""
        self.diverted_by[expression] += 1

    def status(self) -> RuleStatus:
        """Return the counts so far, over all runs, with what was undecided in this run."""
        found = self.unhandled()
        return RuleStatus(
            found.skipped_by,
            found.skipped_for,
            found.diverted_by,
            dict(self.undecided),
            dict(self.why_undecided),
        )

    def unhandled(self) -> Unhandled:
        """Return the counts so far, over all runs, for the plan and the journal."""
        return Unhandled(dict(self.skipped_by), dict(self.skipped_for), dict(self.diverted_by))


class Selection:
    """Selects the sub-messages that an expression is true of. It selects the same ones in each run.

    Raises BadExpression if the expression can't be understood.
    """

    def __init__(self, where: str) -> None:
        self._predicate = Predicate(where)
        # Whether the expression has the same value for all sub-messages of a message.
        self.of_message = self._predicate.of_message

    def bits(self, subs: Sequence[SubMessage]) -> int:
        """Return the bits of the sub-messages of a message that are selected.

        A message that ``split`` rejected is always selected, so that the first class accounts for
        it. A barrier is never selected, because it has to come after everything before it. Nor is a
        sub-message for which the expression has no value. A dead letter is judged as the
        sub-message that it was, whether this run redrives it or not.
        """
        found, of_message = 0, None
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier):
                found |= isinstance(sub, Unsplit) << index
                continue
            selected = self._selects(sub) if of_message is None else of_message
            if self.of_message:
                of_message = selected
            found |= selected << index
        return found

    def _selects(self, sub: SubMessage) -> bool:
        redriven = sub.redriven if isinstance(sub, LeftAlone) else sub
        if redriven is None:
            return False
        try:
            return self._predicate.matches(
                redriven.original if isinstance(redriven, Redriven) else redriven
            )
        except Undecided:
            return False
