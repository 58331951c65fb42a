"""Rules: which sub-messages of a backlog are skipped on purpose, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from enum import Enum
from typing import Any

from drainer.core import fields
from drainer.core.claims import Claim
from drainer.errors import UsageError

LIMIT = "limit-per-key"  # the name of the rule that --limit-per-key is


class OverLimit(Enum):
    """What becomes of a sub-message above the limit of its sub-key."""

    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


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
        """Whether it has a name other than what it says."""
        return self != self.typed_key(*self.keys[:1]) and self != self.typed(self.when or "")

    @classmethod
    def typed_key(cls, key: str = "") -> SkipRule:
        """As ``--skip-key`` makes it."""
        return cls(f"skip-key {key}", keys=(key,))

    @classmethod
    def typed(cls, expression: str) -> SkipRule:
        """As ``--skip`` makes it."""
        return cls(" ".join(expression.split()) or "skip", expression)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "when": self.when, "keys": list(self.keys)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SkipRule:
        return cls(
            fields.text(body["name"]),
            fields.optional(fields.text, body["when"]),
            fields.texts(body["keys"]),
        )


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """All rules of a drain, in the order in which they are asked; the limit is asked last.

    Raises ValueError when two have one name, or one would never skip anything.
    """

    skip: tuple[SkipRule, ...] = ()
    limit_per_key: int | None = None
    over_limit: OverLimit = OverLimit.SKIP

    def __post_init__(self) -> None:
        names = Counter([LIMIT, *(rule.name for rule in self.skip)])
        twice = next((name for name, times in names.items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"there are two rules named {twice!r}")
        for rule in self.skip:
            if not rule.name.strip():
                raise ValueError("a rule has no name")
            if rule.when is None and not rule.keys:
                raise ValueError(f"rule {rule.name!r} has neither when nor keys")
        if self.limit_per_key is not None and self.limit_per_key < 1:
            raise ValueError("limit_per_key is below one")

    def __bool__(self) -> bool:
        return bool(self.skip) or self.limit_per_key is not None

    @property
    def writes_letters(self) -> bool:
        return self.limit_per_key is not None and self.over_limit is OverLimit.DEAD_LETTER

    def as_json(self) -> dict[str, Any]:
        return {
            "skip": [rule.as_json() for rule in self.skip],
            "limit_per_key": self.limit_per_key,
            "over_limit": self.over_limit.value,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RuleSettings:
        """Raises KeyError, TypeError or ValueError when the body is not what was written."""
        return cls(
            tuple(map(SkipRule.from_json, body["skip"])),
            fields.optional(fields.whole, body["limit_per_key"]),
            OverLimit(body["over_limit"]),
        )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> RuleSettings:
        """From the table that a rules file is. Raises UsageError."""
        _insist_on_names("the file", table, ("skip", "limit_per_key", "over_limit"))
        rules = table.get("skip", [])
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise UsageError("skip is no list of tables", hint="begin each rule with [[skip]]")
        skip = tuple(_rule_of(number, rule) for number, rule in enumerate(rules, 1))
        limit = _of("limit_per_key", fields.whole, table.get("limit_per_key"), "a whole number")
        over = table.get("over_limit", OverLimit.SKIP.value)
        try:
            return cls(skip, limit, OverLimit(over))
        except ValueError as error:
            raise UsageError(str(error), hint=_TABLE_HINT) from None


@dataclass(frozen=True, slots=True)
class RuleAccount:
    """What was taken out of a backlog on purpose, over all runs, and what the limit remembers.

    Attributes:
        skipped_by: sub-messages skipped, by the rule's name.
        dead_by: sub-messages that became dead letters, by the rule's name.
        asked_below: by partition; all that was delivered below this offset has been asked about,
            and what is still pending of it is to be handled.
        counts: how many have passed, of the sub-keys with the most (``limit_text``).
        asked_by: by claim, what ``asked_below`` is for its sub-messages alone, where that is more.
        skipped_for: sub-messages that the handler skipped, by the reason that it gave.
    """

    skipped_by: Mapping[str, int] = field(default_factory=dict)
    dead_by: Mapping[str, int] = field(default_factory=dict)
    asked_below: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    asked_by: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    skipped_for: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in dataclass_fields(self))

    def merge(self, later: RuleAccount) -> RuleAccount:
        """With a later record added: its accounts are whole, of the limit it tells what is new."""
        below = greater(self.asked_below, later.asked_below)
        return RuleAccount(
            {**self.skipped_by, **later.skipped_by},
            {**self.dead_by, **later.dead_by},
            below,
            {**self.counts, **later.counts},
            asked_beyond(below, (self.asked_by, later.asked_by)),
            {**self.skipped_for, **later.skipped_for},
        )

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "skipped_by": dict(self.skipped_by),
            "dead_by": dict(self.dead_by),
            "skipped_for": dict(self.skipped_for),
            "asked_below": _offsets_as_json(self.asked_below),
            "counts": dict(self.counts),
        }
        if self.asked_by:
            body["asked_by"] = {
                selector: _offsets_as_json(below) for selector, below in self.asked_by.items()
            }
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RuleAccount:
        """Raises KeyError, TypeError, ValueError or AttributeError when it is none."""
        return cls(
            _counts(body["skipped_by"]),
            _counts(body["dead_by"]),
            _offsets(body["asked_below"]),
            _counts(body["counts"]),
            {
                str(Claim.parse(selector)): _offsets(below)
                for selector, below in body.get("asked_by", {}).items()
            },
            _counts(body["skipped_for"]),
        )


def asked_beyond(
    below: Mapping[int, int], asked_by: Iterable[Mapping[str, Mapping[int, int]]]
) -> dict[str, dict[int, int]]:
    """What several accounts say of claims, as far as it is more than ``below`` says of all."""
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
    """Of each name the greater number."""
    return {**one, **{name: max(number, one.get(name, 0)) for name, number in other.items()}}


_TABLE_HINT = (
    'as in: [[skip]], name = "e-mails", when = "payload.kind == \'set_email\'", or keys = ["app"]'
)


def _rule_of(number: int, table: Mapping[str, Any]) -> SkipRule:
    where = f"rule {number}"
    _insist_on_names(where, table, ("name", "when", "keys"))
    name = _of(f"{where}: name", fields.text, table.get("name"), "text")
    if name is None:
        raise UsageError(f"{where} has no name", hint=_TABLE_HINT)
    where = f"rule {name!r}"
    return SkipRule(
        name,
        _of(f"{where}: when", fields.text, table.get("when"), "text"),
        _of(f"{where}: keys", fields.texts, table.get("keys"), "a list of texts") or (),
    )


def _of(where: str, kind: Callable[[Any], Any], value: Any, wanted: str) -> Any:
    try:
        return fields.optional(kind, value)
    except TypeError:
        raise UsageError(f"{where} is {value!r}, and not {wanted}", hint=_TABLE_HINT) from None


def _insist_on_names(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UsageError(
            f"{where} has {unknown[0]!r}, which means nothing here",
            hint=f"it may have {', '.join(known)}",
        )


def _offsets(body: Mapping[str, Any]) -> dict[int, int]:
    return {fields.number(n): fields.whole(offset) for n, offset in body.items()}


def _offsets_as_json(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def _counts(body: Mapping[str, Any]) -> dict[str, int]:
    found = {fields.text(name): fields.whole(count) for name, count in body.items()}
    if any(count < 0 for count in found.values()):
        raise ValueError("a count is below zero")
    return found
