"""Splitting a sampled backlog: what it is made of, and what of it rules leave out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.bundles import FOLD_MOST, Coalesce, fold
from drainer.errors import HandleFailed, Refused, SplitFailed
from drainer.insight.forecast.workload import Keys, Neighbours, Workload
from drainer.kafka.sample import Sample
from drainer.loader import LoadedHandler, describe
from drainer.message import Barrier, Message, SubMessage
from drainer.policy.rules.rule_filter import TOO_MANY_KEYS, RuleFilter
from drainer.policy.rules.settings import LIMIT, RuleSettings

SPLIT_MOST = 1_000_000  # sub-messages
FOLDED_MOST = 200_000  # where coalesce is asked, which keeps the last of each sub-key
FAILURE_HINT = "a drain halts there: fix split, or see what is at that offset"


def split_one(
    split: Callable[[Message], Iterable[SubMessage]] | None, message: Message
) -> list[SubMessage]:
    """What a message splits into; None is the default split. Raises SplitFailed."""
    if split is None:
        return [SubMessage(message.key, message.value)]
    try:
        return list(split(message))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also of one that calls sys.exit()
        raise SplitFailed(
            f"split failed at {message}: {describe(error)}", hint=FAILURE_HINT
        ) from error


Split = Callable[[Message], list[SubMessage]]


def splitter(handler: LoadedHandler) -> Split:
    """``split_one`` of a handler, whose ``open`` is not called; it raises Refused."""

    def split(message: Message) -> list[SubMessage]:
        try:
            return split_one(handler.split, message)
        except SplitFailed as error:
            hint = "Fix the handler; nothing was handled or committed."
            raise Refused(str(error), hint=hint) from error

    return split


@dataclass(frozen=True, slots=True)
class Skipped:
    """What rules leave out of a backlog of ``sub_messages``: how many, by the rule's name."""

    sub_messages: int
    by_rule: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_rule.values())


@dataclass(frozen=True, slots=True)
class SplitSample:
    """A sample that was split. Without rules ``skipped`` is None.

    Attributes:
        workload: what is left to handle.
        split_s: what ``split`` takes for one message.
        rules_s: what the rules take for the sub-messages of one message.
        fold_s: what ``coalesce`` takes for one sub-message.
        fan_out: sub-messages of a message, with those that are left out.
    """

    workload: Workload
    split_s: float
    rules_s: float = 0.0
    fold_s: float = 0.0
    skipped: Skipped | None = None
    fan_out: float = 0.0


def split_sample(
    sample: Sample, split: Split, handler: LoadedHandler, rules: RuleSettings
) -> SplitSample:
    """Splits a sample, and asks rules and ``coalesce`` about its sub-messages.

    Raises Refused when the handler fails.
    """
    lengths = {number: end - start for number, (start, end) in sample.ranges.items()}
    looked_at = dict.fromkeys(lengths, 0)
    for window in sample.windows:
        looked_at[window.partition] += window.end - window.start
    coalesce = handler.bundling.coalesce if handler.bundling is not None else None
    foldable = None if coalesce is None else _Foldable(coalesce)
    most = SPLIT_MOST if foldable is None else FOLDED_MOST
    share = min(1.0, most / max(1.0, _first_fan_out(sample, split) * len(sample.messages)))
    limit = rules.limit_per_key if sample.whole and share == 1.0 else None
    rule_filter = RuleFilter(replace(rules, limit_per_key=limit)) if rules else None
    skipped: dict[str, float] = {}
    keys, stretches = Keys(), []
    spent_s = rules_s = fold_s = sub_messages = 0.0
    messages_split = subs_split = 0
    for window in sample.windows:
        shapes = []
        messages = window.messages[: max(1, round(len(window.messages) * share))]
        # Where a log has holes, its windows have them too.
        times = lengths[window.partition] / max(1, looked_at[window.partition])
        stand_for = len(window.messages) * times
        here: Counter[str] = Counter()
        for message in messages:
            begun_s = time.perf_counter()
            subs = split(message)
            split_at_s = time.perf_counter()
            spent_s += split_at_s - begun_s
            subs_split += len(subs)
            sub_messages += len(subs) * stand_for / len(messages)
            if rule_filter is not None:
                subs = _passed(rule_filter, message, subs, here)
                rules_s += time.perf_counter() - split_at_s
            folds = 0
            if foldable is not None:
                begun_s = time.perf_counter()
                folds = _folds(foldable, message, subs)
                fold_s += time.perf_counter() - begun_s
            shapes.append(keys.shape(message, subs, folds))
        messages_split += len(shapes)
        for name, number in here.items():
            skipped[name] = skipped.get(name, 0.0) + number * stand_for / len(messages)
        stretches.append(Neighbours(window.partition, shapes, stand_for))
    names = [rule.name for rule in rules.skip] + ([] if limit is None else [LIMIT])
    by_rule = {name: round(skipped.get(name, 0.0)) for name in names}
    return SplitSample(
        Workload(stretches, keys),
        spent_s / max(1, messages_split),
        rules_s / max(1, messages_split),
        0.0 if foldable is None else fold_s / max(1, foldable.asked),
        Skipped(round(sub_messages), by_rule) if rules else None,
        subs_split / max(1, messages_split),
    )


class _Foldable:
    """Asks ``coalesce`` about each sub-message and what is before it in the lane of its sub-key.

    As in a drain whose lanes are so long that a call is offered as much as it may take.
    """

    def __init__(self, coalesce: Coalesce) -> None:
        self._coalesce = coalesce
        # By sub-key: the operation so far, the first sub-message in it, and how many they are.
        self._ends: dict[Hashable, tuple[SubMessage, SubMessage, int]] = {}
        self.asked = 0

    def bits(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """The bits of those that are folded. Raises HandleFailed when ``coalesce`` fails."""
        found = 0
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier) or sub.keys is not None:
                continue
            sub.message, sub.index = message, index
            before = self._ends.get(sub.key)
            into = None
            if before is not None and before[2] < FOLD_MOST:
                self.asked += 1
                into = fold(self._coalesce, before[0], sub, before[1])
            if into is None or before is None:
                self._ends[sub.key] = (sub, sub, 1)
                continue
            if into.message is None:
                into.message, into.index = message, index
            found |= 1 << index
            self._ends[sub.key] = (into, before[1], before[2] + 1)
        return found


def _passed(
    rule_filter: RuleFilter, message: Message, subs: Sequence[SubMessage], skipped: Counter[str]
) -> list[SubMessage]:
    left = []
    for index, sub in enumerate(subs):
        sub.message, sub.index = message, index
        name = rule_filter.skips(sub)
        if name is None:
            left.append(sub)
        else:
            skipped[name] += 1
    if rule_filter.full:
        raise Refused(TOO_MANY_KEYS, hint="Leave it out: a drain with it would halt.")
    return left


def _folds(foldable: _Foldable, message: Message, subs: Sequence[SubMessage]) -> int:
    try:
        return foldable.bits(message, subs)
    except HandleFailed as error:
        raise Refused(str(error), hint=error.hint) from error


def _first_fan_out(sample: Sample, split: Split) -> float:
    some = sample.messages[:: max(1, len(sample.messages) // 100)]
    return sum(len(split(message)) for message in some) / max(1, len(some))
