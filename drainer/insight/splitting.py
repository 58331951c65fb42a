"""Splitting a sampled backlog: what it is made of, and what of it rules leave out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.bundles import FOLD_MOST, Coalesce, fold
from drainer.errors import HandleFailed, Refused, SplitFailed
from drainer.insight.forecast.workload import Keys, Neighbours, Workload
from drainer.kafka.sample import Sample
from drainer.loader import LoadedHandler, split_up
from drainer.message import Barrier, SubMessage
from drainer.policy.rules.rule_filter import TOO_MANY_KEYS, RuleFilter
from drainer.policy.rules.settings import LIMIT, RuleSettings

SPLIT_MOST = 1_000_000  # sub-messages
FOLDED_MOST = 200_000  # where coalesce is asked, which keeps the last of each sub-key


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
        rest_s: what rules and ``coalesce`` take for the sub-messages of one message.
        skipped: what the rules leave out.
        fan_out: sub-messages of a message, with those that are left out.
    """

    workload: Workload
    split_s: float
    rest_s: float
    skipped: Skipped | None
    fan_out: float


def split_sample(sample: Sample, handler: LoadedHandler, rules: RuleSettings) -> SplitSample:
    """Splits a sample, and asks rules and ``coalesce`` about its sub-messages.

    ``open`` is not called. Raises Refused when the handler fails.
    """
    try:
        return _split_sample(sample, handler, rules)
    except (SplitFailed, HandleFailed) as error:
        hint = "Fix the handler; nothing was handled or committed."
        raise Refused(str(error), hint=hint) from error


def _split_sample(sample: Sample, handler: LoadedHandler, rules: RuleSettings) -> SplitSample:
    lengths = {number: end - start for number, (start, end) in sample.ranges.items()}
    looked_at = Counter[int]()
    for window in sample.windows:
        looked_at[window.partition] += window.end - window.start
    foldable = None
    if handler.bundling is not None and handler.bundling.coalesce is not None:
        foldable = _Foldable(handler.bundling.coalesce)
    most = SPLIT_MOST if foldable is None else FOLDED_MOST
    share = min(1.0, most / max(1.0, _first_fan_out(sample, handler) * len(sample.messages)))
    limit = rules.limit_per_key if sample.whole and share == 1.0 else None
    rule_filter = RuleFilter(replace(rules, limit_per_key=limit)) if rules else None
    skipped = dict.fromkeys([rule.name for rule in rules.skip] + ([LIMIT] if limit else []), 0.0)
    keys, stretches = Keys(), []
    split_s = rest_s = sub_messages = 0.0
    messages_split = subs_split = 0
    for window in sample.windows:
        messages = window.messages[: max(1, round(len(window.messages) * share))]
        # Where a log has holes, its windows have them too.
        times = lengths[window.partition] / max(1, looked_at[window.partition])
        stand_for = len(window.messages) * times
        each_stands_for = stand_for / max(1, len(messages))
        shapes = []
        for message in messages:
            begun_s = time.perf_counter()
            subs = split_up(handler.split, message)
            split_at_s = time.perf_counter()
            split_s += split_at_s - begun_s
            subs_split += len(subs)
            sub_messages += len(subs) * each_stands_for
            for index, sub in enumerate(subs):
                sub.message, sub.index = message, index
            if rule_filter is not None:
                subs = _passed(rule_filter, subs, each_stands_for, skipped)
            if foldable is not None:
                foldable.look_at(subs)
            rest_s += time.perf_counter() - split_at_s
            shapes.append(keys.shape(message, subs))
        messages_split += len(shapes)
        stretches.append(Neighbours(window.partition, shapes, stand_for))
    by_rule = {name: round(number) for name, number in skipped.items()}
    return SplitSample(
        Workload(stretches, keys, 0.0 if foldable is None else foldable.share),
        split_s / max(1, messages_split),
        rest_s / max(1, messages_split),
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
        self._seen = self._folded = 0

    @property
    def share(self) -> float:
        """Of the sub-messages that have one before them in their lane, those that are folded."""
        return self._folded / max(1, self._seen)

    def look_at(self, subs: Sequence[SubMessage]) -> None:
        """Raises HandleFailed when ``coalesce`` fails."""
        for sub in subs:
            if isinstance(sub, Barrier) or sub.keys is not None:
                continue
            before, first, count = self._ends.get(sub.key, (None, sub, FOLD_MOST))
            self._seen += before is not None
            into = None
            if before is not None and count < FOLD_MOST:
                into = fold(self._coalesce, before, sub, first)
            if into is None:
                self._ends[sub.key] = (sub, sub, 1)
                continue
            if into.message is None:
                into.message, into.index = sub.message, sub.index
            self._folded += 1
            self._ends[sub.key] = (into, first, count + 1)


def _passed(
    rule_filter: RuleFilter,
    subs: Sequence[SubMessage],
    stands_for: float,
    skipped: dict[str, float],
) -> list[SubMessage]:
    left = []
    for sub in subs:
        name = rule_filter.skips(sub)
        if name is None:
            left.append(sub)
        else:
            skipped[name] += stands_for
    if rule_filter.full:
        raise Refused(TOO_MANY_KEYS, hint="Leave it out: a drain with it would halt.")
    return left


def _first_fan_out(sample: Sample, handler: LoadedHandler) -> float:
    some = sample.messages[:: max(1, len(sample.messages) // 100)]
    return sum(len(split_up(handler.split, message)) for message in some) / max(1, len(some))
