"""Looking at a backlog before it is drained: what it is made of, what of it rules leave out, and
what it costs here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.batches import FOLD_MOST, Coalesce, fold
from drainer.engine.loop import hurried_interpreter
from drainer.errors import HandleFailed, Refused, SplitFailed
from drainer.insight.calibration import Calibration
from drainer.insight.first import Dealing, Dealt
from drainer.insight.forecast.simulate import Costs
from drainer.insight.forecast.workload import Keys, Neighbours, Shape, Workload
from drainer.insight.retention import Expiry, first_expiry
from drainer.kafka.backlog import Backlog, freeze, parse_from, parse_until
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.sample import Sample, sample_backlog
from drainer.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.rules import LIMIT, RuleSettings
from drainer.operations.start import Request
from drainer.policy.rules import TOO_MANY_KEYS, RuleFilter
from drainer.splitting import split_up

SAMPLED_MOST = 50_000  # messages
WHOLE_MOST = 200_000  # messages of a backlog that is read as a whole
PACE_S, PACE_MESSAGES = 0.3, 100_000  # how long to read on and on, to see how fast that goes
FIRST_WAIT_S = 10.0
FETCH_BYTES = 64 * 1024 * 1024  # a default drain's
QUIET_S = 1.5  # how long nothing needs to be reported
SPLIT_MOST = 1_000_000  # sub-messages
FOLDED_MOST = 200_000  # where coalesce is asked, which keeps the last of each sub-key

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Skipped:
    """What rules leave out of a backlog of ``sub_messages``: how many, by the rule's name."""

    sub_messages: int
    by_rule: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_rule.values())


@dataclass(frozen=True, slots=True)
class Measured:
    """A backlog as it was looked at: what it is made of, and what it costs to read and split."""

    workload: Workload
    costs: Costs
    split_s: float
    skipped: Skipped | None = None  # by rules, when there are any; not in the workload
    expiry: Expiry | None = None  # the head that retention deletes first
    message_bytes: float = 0.0  # of one message, on average: key, value and headers
    dealt: Dealt | None = None  # when there are classes
    rejected: tuple[int, str] = 0, ""  # messages, by ``split``, and the first error


def backlog_of(cluster: Cluster, request: Request) -> Backlog:
    """The backlog that a drain would freeze now, as ``freeze`` has it for who only looks."""
    return freeze(
        cluster,
        request.topic,
        request.group,
        request.partitions or None,
        parse_from(request.from_),
        parse_until(request.until),
        to_look=True,
    )


def look_at(
    cluster: Cluster,
    backlog: Backlog,
    request: Request,
    concurrency: int,
    print_line: Say = lambda text: None,
) -> Measured:
    """Samples and splits a backlog, and measures what fetch, split and engine cost here.

    Nothing of it is handled, and no group is touched. What rules leave out is not part of the
    workload, nor what ``split`` rejects. Raises Refused when the topic can't be read, or ``split``
    rejects all of the sample, or ``coalesce`` fails.
    """
    tell = Teller(print_line)
    handler = request.handler
    tell("reading a sample of the backlog")
    most = WHOLE_MOST if backlog.offsets <= WHOLE_MOST else SAMPLED_MOST
    sample = sample_backlog(cluster, backlog, most)
    if not sample.messages:
        return Measured(Workload((), Keys()), Costs(), 0.0)
    with hurried_interpreter():
        tell("splitting it")
        dealing = None
        if request.classes.each:
            dealing = Dealing([each.where for each in request.classes.each], request.order)
        split = split_sample(sample, handler, request.rules, dealing)
        tell("measuring how fast it can be fetched")
        begin_s, fetch_s, wrap_s = _fetch_pace(cluster, backlog, request.group)
        tell("measuring what a sub-message costs on this machine")
        fan_out = None if handler.split is None else split.fan_out
        calibration = Calibration(fan_out, concurrency, handler.is_async)
        sub_message_s = together_s = calibration.sub_message_s()
        if handler.bundling is not None:
            together_s = min(sub_message_s, calibration.together_s(handler.bundling))
    tell("looking when retention reaches it")
    return Measured(
        split.workload,
        Costs(
            sub_message_s=sub_message_s,
            message_s=split.split_s + split.rest_s + wrap_s,
            fetch_s=fetch_s,
            begin_s=begin_s,
            together_s=together_s,
        ),
        split.split_s,
        split.skipped,
        first_expiry(cluster, backlog, sample.bytes_of_offset()),
        sample.read_bytes / len(sample.messages),
        split.dealt,
        split.rejected,
    )


def _fetch_pace(cluster: Cluster, backlog: Backlog, group: str) -> tuple[float, float, float]:
    """Until the first message, from one to the next, and to make a message of a record."""
    thread = FetchThread(
        cluster.settings,
        group=group,
        topic=backlog.topic,
        topic_id=backlog.topic_id,
        ranges={
            n: (part.start, part.end) for n, part in backlog.partitions.items() if part.offsets
        },
        queue_bytes=FETCH_BYTES,
        prefetch_bytes=FETCH_BYTES,
        partition_load=lambda number: 0,
        load_bytes=FETCH_BYTES,
        notify=lambda: None,
    )
    begun_s = time.perf_counter()
    first_s, last_s, spent_s = 0.0, begun_s, 0.0
    count = 0
    thread.start()
    try:
        while thread.failure is None and not (thread.done and not thread.queued_bytes):
            batch = thread.next_batch()
            now_s = time.perf_counter()
            if batch is not None:
                first_s = first_s or now_s
                count += sum(1 for _ in batch.messages)
                last_s = time.perf_counter()
                spent_s += last_s - now_s
            elif now_s - begun_s > FIRST_WAIT_S:
                break
            else:
                time.sleep(0.0005)
            if first_s and (now_s - first_s > PACE_S or count >= PACE_MESSAGES):
                break
    finally:
        thread.stop()
    if thread.failure is not None:
        raise thread.failure
    if not count:
        return 0.0, 0.0, 0.0
    return first_s - begun_s, (last_s - first_s) / count, spent_s / count


class Teller:
    """Says what is being done once it has taken so long that somebody may wonder."""

    def __init__(self, print_line: Say) -> None:
        self._say = print_line
        self._told_s = time.monotonic()

    def __call__(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s > QUIET_S:
            self._told_s = now_s
            self._say(f"{text} …")


@dataclass(frozen=True, slots=True)
class SplitSample:
    """A sample that was split. Without rules ``skipped`` is None."""

    workload: Workload
    split_s: float  # what the handler's own ``split`` takes for one message
    rest_s: float  # what rules and ``coalesce`` take for the sub-messages of one message
    skipped: Skipped | None
    fan_out: float  # sub-messages of a message, with those that are left out
    dealt: Dealt | None = None
    rejected: tuple[int, str] = 0, ""


def split_sample(
    sample: Sample,
    handler: LoadedHandler,
    rules: RuleSettings,
    dealing: Dealing | None = None,
) -> SplitSample:
    """Splits a sample, and asks rules and ``coalesce`` about its sub-messages.

    ``open`` is not called. Raises Refused when the handler fails.
    """
    try:
        return _split_sample(sample, handler, rules, dealing)
    except (SplitFailed, HandleFailed) as error:
        hint = "Fix the handler. Nothing was handled or committed."
        raise Refused(str(error), hint=hint) from error


def _split_sample(
    sample: Sample, handler: LoadedHandler, rules: RuleSettings, dealing: Dealing | None
) -> SplitSample:
    lengths = {number: end - start for number, (start, end) in sample.ranges.items()}
    looked_at = Counter[int]()
    for window in sample.windows:
        looked_at[window.partition] += window.end - window.start
    foldable = None
    if handler.bundling is not None and handler.bundling.coalesce is not None:
        foldable = _Foldable(handler.bundling.coalesce)
    most = SPLIT_MOST if foldable is None else FOLDED_MOST
    split = _Split(handler)
    share = min(1.0, most / max(1.0, _first_fan_out(sample, split) * len(sample.messages)))
    limit = rules.max_per_key if sample.whole and share == 1.0 else None
    rule_filter = RuleFilter(replace(rules, max_per_key=limit)) if rules else None
    skipped = dict.fromkeys([rule.name for rule in rules.skip] + ([LIMIT] if limit else []), 0.0)
    keys, stretches = Keys(), []
    passes: list[list[Neighbours]] = []
    if dealing is not None:
        passes = [[] for _ in (*dealing.look_s, "the rest")]
    split_s = rest_s = sub_messages = 0.0
    messages_split = subs_split = 0
    for window in sample.windows:
        messages = window.messages[: max(1, round(len(window.messages) * share))]
        # Where a log has holes, its windows have them too.
        times = lengths[window.partition] / max(1, looked_at[window.partition])
        stand_for = len(window.messages) * times
        each_stands_for = stand_for / max(1, len(messages))
        shapes = []
        parts: list[list[Shape]] = [[] for _ in passes]
        for message in messages:
            begun_s = time.perf_counter()
            subs = split(message, each_stands_for)
            split_at_s = time.perf_counter()
            if handler.split is not None:  # the default one is the engine's
                split_s += split_at_s - begun_s
            subs_split += len(subs)
            sub_messages += len(subs) * each_stands_for
            for index, sub in enumerate(subs):
                sub.message, sub.index = message, index
            if rule_filter is not None:
                subs = _passed(rule_filter, subs, each_stands_for, skipped)
            folds = frozenset[int]() if foldable is None else foldable.look_at(subs)
            if rule_filter is not None or foldable is not None:
                rest_s += time.perf_counter() - split_at_s
            shapes.append(keys.shape(message, subs, folds))
            if dealing is not None:
                dealt = dealing.deal(window.partition, subs, each_stands_for)
                for part, its in zip(parts, dealt, strict=True):
                    folded = {n for n, sub in enumerate(its) if sub.index in folds}
                    part.append(keys.shape(message, its, folded))
        messages_split += len(shapes)
        stretches.append(Neighbours(window.partition, shapes, stand_for))
        for each, part in zip(passes, parts, strict=True):
            each.append(Neighbours(window.partition, part, stand_for))
    by_rule = {name: round(number) for name, number in skipped.items()}
    return SplitSample(
        Workload(stretches, keys),
        split_s / max(1, messages_split),
        rest_s / max(1, messages_split),
        Skipped(round(sub_messages), by_rule) if rules else None,
        subs_split / max(1, messages_split),
        None
        if dealing is None
        else Dealt(
            tuple(Workload(each, keys) for each in passes),
            tuple(seconds / max(1, messages_split) for seconds in dealing.look_s),
            tuple(map(round, dealing.held)),
        ),
        split.found(subs_split),
    )


class _Split:
    """The handler's ``split``. What it rejects splits into nothing, and is counted."""

    def __init__(self, handler: LoadedHandler) -> None:
        self._split = handler.split
        self._rejected = 0.0
        self._error: SplitFailed | None = None  # the first

    def __call__(self, message: Message, stands_for: float = 0.0) -> list[SubMessage]:
        try:
            return split_up(self._split, message)
        except SplitFailed as error:
            self._error = self._error or error
            self._rejected += stands_for
            return []

    def found(self, subs: int) -> tuple[int, str]:
        """How many it rejected, and the first error. Raises SplitFailed if there are no ``subs``
        for that."""
        if self._error is not None and not subs:
            raise self._error
        return round(self._rejected), str(self._error)


class _Foldable:
    """Asks ``coalesce`` about each sub-message and what is before it in the lane of its sub-key.

    As in a drain whose lanes are so long that a call is offered as much as it may take.
    """

    def __init__(self, coalesce: Coalesce) -> None:
        self._coalesce = coalesce
        # By sub-key: the operation so far, the first sub-message in it, and how many they are.
        self._ends: dict[Hashable, tuple[SubMessage, SubMessage, int]] = {}

    def look_at(self, subs: Sequence[SubMessage]) -> frozenset[int]:
        """The indexes of those that are folded. Raises HandleFailed when ``coalesce`` fails."""
        folds = []
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier) or sub.keys is not None:
                continue
            before, first, count = self._ends.get(sub.key, (None, sub, FOLD_MOST))
            into = None
            if before is not None and count < FOLD_MOST:
                into = fold(self._coalesce, before, sub, first)
            if into is None:
                self._ends[sub.key] = (sub, sub, 1)
                continue
            if into.message is None:
                into.message, into.index = sub.message, sub.index
            folds.append(index)
            self._ends[sub.key] = (into, first, count + 1)
        return frozenset(folds)


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
        raise Refused(TOO_MANY_KEYS, hint="Remove --max-per-key: a drain with it would halt.")
    return left


def _first_fan_out(sample: Sample, split: _Split) -> float:
    some = sample.messages[:: max(1, len(sample.messages) // 100)]
    return sum(len(split(message)) for message in some) / max(1, len(some))
