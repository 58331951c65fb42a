"""A sample of a backlog, split as a drain would split it: its workload, and what rules skip."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from drainer.core.batches import FOLD_MOST, Coalesce, coalesced
from drainer.errors import SplitFailed
from drainer.insight.first import PassDivider
from drainer.insight.workload import Keys, Neighbours, Shape, Workload
from drainer.kafka.sample import Sample, SampleWindow
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.operations.look import OptionsTried
from drainer.policy.redrive import LeftAlone
from drainer.policy.rules import RuleFilter
from drainer.split.splitting import split_up

SPLIT_MOST = 1_000_000  # At most this many sub-messages of a sample are used.
FOLDED_MOST = 200_000  # The limit if ``coalesce`` is called for each sub-message, which takes time.


@dataclass(frozen=True, slots=True)
class Skipped:
    """The number of sub-messages that each rule skips. ``sub_messages`` is the number of all."""

    sub_messages: int
    by_rule: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_rule.values())


@dataclass(eq=False)
class SampleSplit:
    """A sample whose messages are split, and the effect of rules and ``coalesce`` on it.

    A message that ``split`` rejects is counted, and has no sub-messages. The handler's ``open`` is
    not called. Raises SplitFailed if ``split`` rejects messages and there are no sub-messages at
    all, and HandleFailed if ``coalesce`` fails.

    Attributes:
        tried: gets the sub-messages, those that rules skip too.
        messages: how many messages were split, or rejected by ``split``.
        workload: the workload without what rules skip. With ``--only``, it is that of what is
            selected, and has the messages once for each class, because each class reads them.
        passes: the workload of each pass, the rest last; empty without priority classes.
    """

    sample: Sample
    handler: LoadedHandler
    skip: Sequence[str]
    divider: PassDivider | None = None
    tried: OptionsTried | None = None

    def __post_init__(self) -> None:
        sample, handler, skip = self.sample, self.handler, self.skip
        coalesce = None if handler.batching is None else handler.batching.coalesce
        self._split = handler.split
        self._error: SplitFailed | None = None  # The first error of ``split``.
        self.messages = self._subs = 0
        self._sub_messages = self._rejected = self._split_s = self._rest_s = 0.0
        self._folding = None if coalesce is None else _Folding(coalesce)
        most = SPLIT_MOST if coalesce is None else FOLDED_MOST
        self._share = min(1.0, most / max(1.0, self._first_fan_out(sample) * len(sample.messages)))
        self._rule_filter = RuleFilter(skip) if skip else None
        self._skipped = dict.fromkeys(skip, 0.0)
        self._keys = Keys()
        # The first list has, for each window, the messages without what rules skip. With priority
        # classes, there is a further list for each pass, with only the sub-messages of that pass.
        self._parts: list[list[Neighbours]] = [[]]
        if self.divider is not None:
            self._parts += [[] for _ in range(self.divider.passes)]
        # A window represents its share of the partition's offsets. Holes are as frequent in the
        # window as in the log, so its messages represent the same share of the messages.
        read = Counter[int]()
        for window in sample.windows:
            read[window.partition] += window.end - window.start
        for window in sample.windows:
            start, end = sample.ranges[window.partition]
            self._add(
                window, len(window.messages) * ((end - start) / max(1, read[window.partition]))
            )
        if self._error is not None and not self._subs:
            raise self._error
        self.workload, *self.passes = (Workload(part, self._keys) for part in self._parts)
        if self.divider is not None and self.divider.only:
            self.workload = Workload(chain(*self._parts[1:-1]), self._keys)

    @property
    def split_s(self) -> float:
        """Mean seconds of the handler's own ``split`` for one message."""
        return self._split_s / max(1, self.messages)

    @property
    def rest_s(self) -> float:
        """Mean seconds that rules and ``coalesce`` take for the sub-messages of one message."""
        return self._rest_s / max(1, self.messages)

    @property
    def fan_out(self) -> float:
        """Mean sub-messages per message, including those that rules skip."""
        return self._subs / max(1, self.messages)

    @property
    def skipped(self) -> Skipped | None:
        """Sub-messages of the backlog that rules skip; None without rules."""
        if self._rule_filter is None:
            return None
        by_rule = {name: round(number) for name, number in self._skipped.items()}
        return Skipped(round(self._sub_messages), by_rule)

    @property
    def rejected(self) -> tuple[int, str]:
        """The number of messages of the backlog that ``split`` rejects, and its first error."""
        return round(self._rejected), str(self._error)

    def _first_fan_out(self, sample: Sample) -> float:
        some = sample.messages[:: max(1, len(sample.messages) // 100)]
        return sum(len(self._split_up(message)) for message in some) / max(1, len(some))

    def _split_up(self, message: Message, stands_for: float = 0.0) -> list[SubMessage]:
        try:
            found = split_up(self._split, message)
            return [sub for sub in found if not isinstance(sub, LeftAlone)]
        except SplitFailed as error:
            self._error = self._error or error
            self._rejected += stands_for
            return []

    def _add(self, window: SampleWindow, stands_for: float) -> None:
        messages = window.messages[: max(1, round(len(window.messages) * self._share))]
        each_stands_for = stands_for / max(1, len(messages))
        shapes = [self._add_message(message, each_stands_for) for message in messages]
        for part, its in zip(self._parts, zip(*shapes, strict=True), strict=False):
            part.append(Neighbours(window.partition, its, stands_for))

    def _add_message(self, message: Message, stands_for: float) -> list[Shape]:
        begun_s = time.perf_counter()
        subs = self._split_up(message, stands_for)
        split_at_s = time.perf_counter()
        if self._split is not None:  # The calibration measures the engine's default split.
            self._split_s += split_at_s - begun_s
        self.messages += 1
        self._subs += len(subs)
        self._sub_messages += len(subs) * stands_for
        for index, sub in enumerate(subs):
            sub.message, sub.index = message, index
        every = subs
        if self._rule_filter is not None:
            subs = self._without_skipped(self._rule_filter, subs, stands_for)
        folds = frozenset[int]() if self._folding is None else self._folding.folded(subs)
        if self._rule_filter is not None or self._folding is not None:
            self._rest_s += time.perf_counter() - split_at_s
        shapes = [self._keys.shape(message, subs, folds)]
        if self.divider is not None:
            for its in self.divider.divide(message.partition, subs, stands_for):
                indexes = {n for n, sub in enumerate(its) if sub.index in folds}
                shapes.append(self._keys.shape(message, its, indexes))
        if self.tried is not None:
            self.tried.add(every)
        return shapes

    def _without_skipped(
        self, rule_filter: RuleFilter, subs: Sequence[SubMessage], stands_for: float
    ) -> list[SubMessage]:
        left = []
        for sub in subs:
            name = rule_filter.rule_for(sub)
            if name is None:
                left.append(sub)
            else:
                self._skipped[name] += stands_for
        return left


class _Folding:
    """Calls ``coalesce`` for each sub-message and the operation before it on the same sub-key.

    A drain does the same if its lanes are long enough to fill each call.
    """

    def __init__(self, coalesce: Coalesce) -> None:
        self._coalesce = coalesce
        # By sub-key: the operation so far, its first sub-message, and how many are in it.
        self._ends: dict[Hashable, tuple[SubMessage, SubMessage, int]] = {}

    def folded(self, subs: Sequence[SubMessage]) -> frozenset[int]:
        """Return the indexes of those sub-messages that fold into the operation before them.

        Raises HandleFailed if ``coalesce`` fails.
        """
        folds = []
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier) or sub.keys is not None or sub.key is None:
                continue
            before, first, count = self._ends.get(sub.key, (None, sub, FOLD_MOST))
            into = None
            if before is not None and count < FOLD_MOST:
                into = coalesced(self._coalesce, before, sub, first)
            if into is None:
                self._ends[sub.key] = (sub, sub, 1)
                continue
            if into.message is None:
                into.message, into.index = sub.message, sub.index
            folds.append(index)
            self._ends[sub.key] = (into, first, count + 1)
        return frozenset(folds)
