"""Rules and classes: expressions and sub-keys that select sub-messages as they are delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from drainer.errors import BadExpression, raised_as
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.model.claims import Claim, ShardMap
from drainer.model.facts import Facts, Predicate, Undecided
from drainer.model.order import Order, keys_of
from drainer.model.progress import Outcome
from drainer.model.rules import LIMIT, RuleAccount, RuleSettings, SkipRule, greater, offsets_beyond
from drainer.policy.dead_letter import key_text
from drainer.policy.redrive import LeftAlone, Redriven

REASONS_MOST = 50  # that are counted apart
OTHER_REASONS = "other reasons"
LIMITED_KEYS_MOST = 100_000  # that a limit counts: 20 MB, and 3 MB of the plan (0.1 s to write)
TOO_MANY_KEYS = (
    f"--max-per-key can count {LIMITED_KEYS_MOST:,} sub-keys at most, and there are more"
)
KEY_TEXT_MOST = 80  # characters; of a longer sub-key a digest is remembered


def limit_text(key: Hashable) -> str:
    """A sub-key as the limit remembers it: its repr, or the beginning of that and a digest."""
    text = repr(key)
    if len(text) <= KEY_TEXT_MOST:
        return text
    digest = blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()
    return f"{text[: KEY_TEXT_MOST // 4]}… {digest}"


class KeyLimit:
    """Lets ``most`` sub-messages of each sub-key pass."""

    def __init__(self, most: int, counts: Mapping[str, int] | None = None) -> None:
        self.most = most
        # How many have passed, by ``limit_text``, in earlier runs too.
        self.counts = dict(counts or {})
        self._news: set[str] = set()

    def passes(self, keys: Iterable[Hashable]) -> bool:
        """Whether a sub-message of these sub-keys is within the limit, and counts it then.

        One of several sub-keys is held back only when all of them have reached the limit.
        """
        counts, most = self.counts, self.most
        open_ = [text for text in map(limit_text, keys) if counts.get(text, 0) < most]
        for text in open_:
            counts[text] = counts.get(text, 0) + 1
        self._news.update(open_)
        return bool(open_)

    def news(self) -> dict[str, int]:
        """The counts that have risen since the last call, for the journal."""
        news, self._news = self._news, set()
        return {text: self.counts[text] for text in news}


class RuleFilter:
    """The rules of a drain at work.

    A rule takes a sub-message out before it enters a lane: it is finished as skipped at once.
    ``account`` is what the rules did in earlier runs.

    Raises BadExpression, which names the rule, when one can't be understood.
    """

    def __init__(self, settings: RuleSettings, account: RuleAccount | None = None) -> None:
        self.settings = settings
        self._shard_map = ShardMap(Order.SUB_KEY)  # other orders have no claims with a limit
        self._before = account = account or RuleAccount()
        named = frozenset(key for rule in settings.skip if rule.when is None for key in rule.keys)
        self._tests = [_Test(rule, named) for rule in settings.skip]
        most = settings.max_per_key
        self._limit = None if most is None else KeyLimit(most, account.counts)
        self._checked_below = account.asked_below
        self._checked_by = [(Claim.parse(text), below) for text, below in account.asked_by.items()]
        self.skipped_by = Counter(account.skipped_by)  # over all runs
        self.skipped_for = Counter(account.skipped_for)  # by the handler
        self.diverted_by = Counter(account.diverted_by)
        self.undecided: Counter[str] = Counter()  # in this run: let through
        self.why_undecided: dict[str, str] = {}  # the first reason of each rule

    @property
    def acts(self) -> bool:
        """Whether anything is ever taken out."""
        return bool(self.settings or self.skipped_for or self.diverted_by)

    @property
    def full(self) -> bool:
        """Whether the limit has counted more sub-keys than it may: it counts no more then."""
        return self._limit is not None and len(self._limit.counts) > LIMITED_KEYS_MOST

    def skips(self, sub: SubMessage) -> str | None:
        """The name of the rule that takes a sub-message out; None when it goes to the handler.

        Sub-messages are checked once, in their order: the limit counts those that pass.
        """
        message = sub.message  # of a redrive's topic, and not where the letter came from
        if isinstance(sub, Redriven):
            sub = sub.original
        facts: Facts | None = None
        for test in self._tests:
            try:
                if test.of_keys(sub):
                    if test.predicate is None:
                        return test.name
                    facts = facts or Facts(sub)
                    if test.predicate.matches(sub, facts):
                        return test.name
            except Undecided as reason:
                self.undecided[test.name] += 1
                self.why_undecided.setdefault(test.name, str(reason))
        if self._limit is None or isinstance(sub, Barrier):
            return None
        if message.offset < self._checked_below.get(message.origin.stream, 0) or (
            self._checked_by and self._was_checked(sub, message)
        ):
            return None  # it passed in an earlier run, which counted it
        return None if self._limit.passes(keys_of(sub)) else LIMIT

    def sift(self, message: Message, subs: Sequence[SubMessage], done: int) -> int:
        """Takes out of a delivered message what the rules skip, and what can't be redriven; gives
        the bits of these.

        ``done`` has the bits of what is not to be checked.
        """
        taken = 0
        for sub in subs:
            if done >> sub.index & 1:
                continue
            if isinstance(sub, LeftAlone):
                self.skipped(sub.payload)
            elif (name := self.skips(sub)) is None:
                continue
            else:
                self.skipped_by[name] += 1
            taken |= 1 << sub.index
            message.ledger.finish(message, sub.index, Outcome.SKIPPED)
        return taken

    def skipped(self, reason: str) -> None:
        """Notes that the handler, or a redrive, skips a sub-message."""
        if reason not in self.skipped_for and len(self.skipped_for) >= REASONS_MOST:
            reason = OTHER_REASONS
        self.skipped_for[reason] += 1

    def account(self, positions: Mapping[int, int]) -> RuleAccount:
        """All that the plan keeps; ``positions`` are below what was delivered, by partition."""
        counts = self._before.counts if self._limit is None else dict(self._limit.counts)
        account = self._account(positions, counts)
        return replace(
            account, asked_by=offsets_beyond(account.asked_below, [self._before.asked_by])
        )

    def changes(self, positions: Mapping[int, int]) -> RuleAccount:
        """Return what a journal's record needs."""
        return self._account(positions, {} if self._limit is None else self._limit.news())

    def _account(self, positions: Mapping[int, int], counts: Mapping[str, int]) -> RuleAccount:
        below = self._checked_below
        if self._limit is not None:
            below = greater(below, positions)
        numbers = dict(self.skipped_for), dict(self.diverted_by)
        return RuleAccount(dict(self.skipped_by), below, counts, {}, *numbers)

    def _was_checked(self, sub: SubMessage, message: Message) -> bool:
        """Whether the task that had its claim has checked it."""
        return any(
            message.offset < below.get(message.partition, 0)
            and self._shard_map.shard_of(sub, claim.of) == claim.number
            for claim, below in self._checked_by
        )


class _Test:
    """One rule, ready for use. ``named`` are the sub-keys of all rules without a condition."""

    def __init__(self, rule: SkipRule, named: frozenset[str]) -> None:
        self.name = rule.name
        self._wanted = frozenset(rule.keys)
        self._skipped = named if rule.when is None else self._wanted
        with raised_as(BadExpression, about=f"rule {rule.name!r}: " if rule.named else "--skip: "):
            self.predicate = None if rule.when is None else Predicate(rule.when)

    def of_keys(self, sub: SubMessage) -> bool:
        """Whether its sub-keys fit: of several all must, by this rule or another, for it touches
        what no rule names."""
        wanted = self._wanted
        if not wanted:
            return True
        if isinstance(sub, Barrier):
            return False
        if sub.keys is None:
            return key_text(sub.key) in wanted
        keys = frozenset(map(key_text, sub.keys))
        return not wanted.isdisjoint(keys) and keys <= self._skipped


class Selection:
    """Sub-messages that an expression is true of, in every run the same ones.

    Raises BadExpression when it can't be understood.
    """

    def __init__(self, where: str) -> None:
        self._predicate = Predicate(where)
        # Whether it is the same for all sub-messages of a message.
        self.of_message = self._predicate.of_message

    def bits(self, subs: Sequence[SubMessage]) -> int:
        """A bit for each of a message's sub-messages that is selected.

        What ``split`` rejected always is: the first class that meets it accounts for it. A barrier
        never is, for it comes after all before it; nor is a sub-message that the
        expression can't be evaluated for. A dead letter is judged as what it was, whether this run
        redrives it or leaves it alone.
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
