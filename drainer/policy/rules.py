"""Rules and classes: expressions that select sub-messages as they are delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from drainer.errors import BadExpression, raised_as
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.model.facts import Facts, Undecided
from drainer.model.predicate import Predicate
from drainer.model.progress import Outcome
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.policy.redrive import LeftAlone, Redriven

REASONS_MOST = 50  # reasons to skip that are counted apart
OTHER_REASONS = "other reasons"


class RuleFilter:
    """The rules of a drain at work, with the counts of all that is not handled.

    A rule is an expression of ``--skip``. What it is true of is taken out before it enters a lane:
    it is finished as skipped at once. ``earlier`` is what was counted in earlier runs.

    Raises BadExpression when an expression can't be understood.
    """

    def __init__(self, expressions: Iterable[str] = (), earlier: Unhandled | None = None) -> None:
        with raised_as(BadExpression, about="--skip: "):
            self._rules = [(text, Predicate(text)) for text in expressions]
        earlier = earlier or Unhandled()
        self.skipped_by = Counter(earlier.skipped_by)
        self.skipped_for = Counter(earlier.skipped_for)
        self.diverted_by = Counter(earlier.diverted_by)
        self.undecided: Counter[str] = Counter()
        self.why_undecided: dict[str, str] = {}  # the first reason, by expression

    @property
    def has_rules(self) -> bool:
        """Whether there is a rule that may take something out."""
        return bool(self._rules)

    def rule_for(self, sub: SubMessage) -> str | None:
        """Return the expression that skips a sub-message; None when it goes to the handler."""
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

    def sift(self, message: Message, subs: Sequence[SubMessage], done: int) -> int:
        """Take out of a delivered message what the rules skip, and what can't be redriven.

        ``done`` has the bits of sub-messages that are not to be checked. Returns the bits of those
        that were taken out.
        """
        taken = 0
        for sub in subs:
            if done >> sub.index & 1:
                continue
            if isinstance(sub, LeftAlone):
                self.skipped(sub.payload)
            elif (text := self.rule_for(sub)) is None:
                continue
            else:
                self.skipped_by[text] += 1
            taken |= 1 << sub.index
            message.ledger.finish(message, sub.index, Outcome.SKIPPED)
        return taken

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
    """Sub-messages that an expression is true of, in every run the same ones.

    Raises BadExpression when it can't be understood.
    """

    def __init__(self, where: str) -> None:
        self._predicate = Predicate(where)
        # Whether it is the same for all sub-messages of a message.
        self.of_message = self._predicate.of_message

    def bits(self, subs: Sequence[SubMessage]) -> int:
        """Return a bit for each of a message's sub-messages that is selected.

        What ``split`` rejected always is: the first class that meets it accounts for it. A barrier
        never is, because it comes after all before it. Nor is a sub-message that the expression
        can't be evaluated for. A dead letter is judged as what it was, whether this run redrives
        it or leaves it alone.
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
