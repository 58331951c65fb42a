"""Rules: which sub-messages of a backlog are skipped on purpose, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from drainer.errors import UsageError
from drainer.model.codec import JsonRecord, Whole

LIMIT = "max-per-key"  # the name of the rule that --max-per-key is


@dataclass(frozen=True, slots=True)
class SkipRule:
    """Skips what ``when`` is true of, what has one of ``keys`` as its sub-key, or what is both.

    ``when`` is an expression (``predicate.py``), ``keys`` are texts as ``key_text`` gives them.
    """

    name: str
    when: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether it has a name other than its content."""
        return self != self.typed_key(*self.keys[:1]) and self != self.typed(self.when or "")

    @classmethod
    def typed_key(cls, key: str = "") -> SkipRule:
        """Make the rule of ``--skip-key``."""
        return cls(f"skip-key {key}", keys=(key,))

    @classmethod
    def typed(cls, expression: str) -> SkipRule:
        """Make the rule of ``--skip``."""
        return cls(" ".join(expression.split()) or "skip", expression)


@dataclass(frozen=True, slots=True)
class RuleSettings(JsonRecord):
    """All rules of a drain, in the order in which they are checked; the limit comes last.

    Raises ValueError when two have one name, or one would never skip anything.
    """

    skip: tuple[SkipRule, ...] = ()
    max_per_key: Whole | None = None

    def __post_init__(self) -> None:
        names = Counter([LIMIT, *(rule.name for rule in self.skip)])
        twice = next((name for name, times in names.items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"two rules have the name {twice!r}")
        for rule in self.skip:
            if not rule.name.strip():
                raise ValueError("a rule has no name")
            if rule.when is None and not rule.keys:
                raise ValueError(f"rule {rule.name!r} has neither when nor keys")
        if self.max_per_key is not None and self.max_per_key < 1:
            raise ValueError("max_per_key is below one")

    def __bool__(self) -> bool:
        return bool(self.skip) or self.max_per_key is not None

    @property
    def in_words(self) -> tuple[str, ...]:
        """Their names, in a sentence if there are any."""
        limit = () if self.max_per_key is None else (f"{LIMIT} {self.max_per_key:,}",)
        names = (*(rule.name for rule in self.skip), *limit)
        return (f"rules: {', '.join(names)}",) if names else ()

    @property
    def read_values(self) -> bool:
        """Whether a rule may need the values of messages."""
        return any("value" in (rule.when or "") for rule in self.skip)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> RuleSettings:
        """Read the table of a rules file. Raises UsageError."""
        _ensure_known("the file", table, cls)
        rules = table.get("skip")
        for number, rule in enumerate(rules if isinstance(rules, list) else (), 1):
            if isinstance(rule, dict):
                _ensure_known(f"rule {number}", rule, SkipRule)
        try:
            return cls.from_json(table)
        except ValueError as error:
            raise UsageError(f"the rules are not valid: {error}", hint=_TABLE_HINT) from None


# Fields of a rule account that add up over tasks.
_NUMBERS = ("skipped_by", "skipped_for", "diverted_by")


@dataclass(frozen=True, slots=True)
class RuleAccount(JsonRecord):
    """Account of what rules took out of a backlog, over all runs, and of what the limit counted."""

    # Sub-messages skipped, by the rule's name.
    skipped_by: Mapping[str, Whole] = field(default_factory=dict)
    # By partition; all that was delivered below this offset has been checked, and what is still
    # pending of it is to be handled.
    asked_below: Mapping[Whole, Whole] = field(default_factory=dict)
    # How many have passed of each sub-key (``limit_text``).
    counts: Mapping[str, Whole] = field(default_factory=dict)
    # By claim, what ``asked_below`` is for its sub-messages alone, where that is more.
    asked_by: Mapping[str, Mapping[Whole, Whole]] = field(default_factory=dict)
    # Sub-messages that the handler skipped, by the reason that it gave.
    skipped_for: Mapping[str, Whole] = field(default_factory=dict)
    # Dead letters of ``--divert``, by the expression.
    diverted_by: Mapping[str, Whole] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def diverted(self) -> int:
        """Count of sub-messages that are dead and did not fail."""
        return sum(self.diverted_by.values())

    @property
    def numbers(self) -> RuleAccount:
        """The numbers that add up over tasks."""
        return RuleAccount(**self._numbers())

    @property
    def without_numbers(self) -> RuleAccount:
        """Without numbers: a task starts from that, for it reports itself alone."""
        return replace(self, **{name: {} for name in _NUMBERS})

    def _numbers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NUMBERS}

    def merge(self, later: RuleAccount) -> RuleAccount:
        """Add a later record, whose numbers include those before it."""
        return self._joined(later, lambda known, new: {**known, **new})

    def __add__(self, other: RuleAccount) -> RuleAccount:
        """Add what another task did, which reports itself alone."""
        return self._joined(other, _sum)

    def __sub__(self, other: RuleAccount) -> RuleAccount:
        """Subtract the numbers of another."""
        less: dict[str, Any] = {
            name: _sum(getattr(self, name), getattr(other, name), -1) for name in _NUMBERS
        }
        return replace(self, **less)

    def _joined(
        self,
        other: RuleAccount,
        numbers: Callable[[Mapping[str, int], Mapping[str, int]], dict[str, int]],
    ) -> RuleAccount:
        below, theirs = greater(self.asked_below, other.asked_below), other._numbers()
        return RuleAccount(
            asked_below=below,
            counts=greater(self.counts, other.counts),
            asked_by=offsets_beyond(below, (self.asked_by, other.asked_by)),
            **{name: numbers(mine, theirs[name]) for name, mine in self._numbers().items()},
        )


def _sum(one: Mapping[str, int], other: Mapping[str, int], sign: int = 1) -> dict[str, int]:
    return {name: one.get(name, 0) + sign * other.get(name, 0) for name in {**one, **other}}


def offsets_beyond(
    below: Mapping[int, int], asked_by: Iterable[Mapping[str, Mapping[int, int]]]
) -> dict[str, dict[int, int]]:
    """Join the offsets of several accounts by claim, where they are above ``below``."""
    found: dict[str, dict[int, int]] = {}
    for each in asked_by:
        for selector, offsets in each.items():
            found[selector] = greater(found.get(selector, {}), offsets)
    beyond = {
        selector: {n: offset for n, offset in offsets.items() if offset > below.get(n, 0)}
        for selector, offsets in found.items()
    }
    return {selector: offsets for selector, offsets in beyond.items() if offsets}


def greater(one: Mapping[Any, int], other: Mapping[Any, int]) -> dict[Any, int]:
    """Numbers by name, of each the greater one."""
    return {**one, **{name: max(number, one.get(name, 0)) for name, number in other.items()}}


_TABLE_HINT = (
    'Write it like: [[skip]], name = "e-mails", when = "payload.kind == \'set_email\'"'
    ' or keys = ["app"]'
)


def _ensure_known(where: str, table: Mapping[str, Any], kind: type) -> None:
    known = [each.name for each in fields(kind)]
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UsageError(
            f"{where} has an unknown field {unknown[0]!r}", hint=f"Use {', '.join(known)}."
        )
