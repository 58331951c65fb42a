"""The inspection of a backlog before it is drained: how large it is, and why.

An inspection only reads. It handles and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from drainer.errors import EXIT_DONE, UsageError
from drainer.insight.retention import (
    ARRIVALS_S,
    READER,
    Expiry,
    Retention,
    earliest_expiry,
    outlook,
)
from drainer.insight.survey import Contents, ItemShare, Skew, SplitFailures, Survey
from drainer.kafka.backlog import Backlog, DrainRange, PartitionBacklog, parse_from, parse_until
from drainer.kafka.cluster import Cluster, Replicas
from drainer.kafka.group import GroupInfo
from drainer.kafka.sample import sample_backlog
from drainer.kafka.spans import Span, read_spans
from drainer.loading.loader import LoadedHandler
from drainer.model.codec import builtins
from drainer.model.plan import OpenTransaction
from drainer.model.shown import Shown
from drainer.model.unhandled import RuleStatus

# A sample is kept in memory, where each message takes half a KiB.
SAMPLE_MESSAGES, SAMPLE_MOST = 20_000, 500_000
AGE_BINS = 10
# The lane of a sub-key with this share of the work limits a drain with a concurrency of 100.
HOT_SHARE = 0.01
HOT_MESSAGES = 20  # With fewer sub-messages in the sample, a large share may be chance.

OnProgress = Callable[[int, int], None]  # It gets the numbers of offsets read so far and in all.

# -o json has the fields of an inspection, and these of its properties.
_FIGURES = (
    *("offsets", "messages", "bytes", "sub_messages", "lost", "hot", "age_s", "arrivals_per_s"),
    *("expiry", "retention_s", "offline", "under_replicated"),
)


@dataclass(frozen=True, slots=True)
class Bin:
    """The share of a backlog's offsets that are ``low`` to ``high`` seconds old."""

    low: float
    high: float
    share: float


@dataclass(frozen=True, slots=True)
class PartitionInspection(PartitionBacklog):
    """One partition's part of the backlog, which is empty if the partition has no leader.

    Attributes:
        leader: the leader's ``host:port``; empty if the partition has no leader.
        messages: how many of the offsets are messages.
        bytes: bytes of the messages' keys and values.
        age_s: the age of the oldest unprocessed message; None if it has no timestamp.
        arrivals_per_s: offsets that were added each second, over the last ``ARRIVALS_S`` seconds.
        expiry: the earliest deletion of the head by retention; None if none is foreseen.
    """

    leader: str
    replicas: Replicas
    messages: int = 0
    bytes: int = 0
    age_s: float | None = None
    arrivals_per_s: float = 0.0
    expiry: Expiry | None = None

    @property
    def lost(self) -> int:
        """Offsets that were deleted before the group handled them."""
        return 0 if self.committed is None else max(0, self.log_start - self.committed)

    @property
    def offline(self) -> bool:
        return not self.leader

    @property
    def under_replicated(self) -> bool:
        return len(self.replicas.in_sync) < len(self.replicas.all)


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """The part of the backlog that was read. ``full`` says whether that is all of it."""

    full: bool
    offsets: int
    read_s: float


@dataclass(frozen=True, slots=True)
class Inspection(Shown):
    """A backlog as it was found; nothing was handled or committed.

    Attributes:
        handler: the reference of the handler; None without one.
        taken_ms: the time of the inspection, in milliseconds since 1970.
        ages: the share of the backlog's offsets by age in seconds, the youngest first. It is empty
            if the first messages of all partitions have no timestamp.
        skew: how the work is spread; None without a handler.
        failures: the messages that ``split`` rejected; None if there are none.
        remarks: warnings about the range of the backlog: what was deleted, what drainer assumes,
            and what is in open transactions. Others are on options that match nothing.
        open_transactions: the open transactions that keep records out of the backlog.
    """

    _page = "drainer.insight.cli.inspect:inspection_page"
    topic: str
    topic_id: str
    cluster_id: str
    group: GroupInfo
    isolation: str
    handler: str | None
    taken_ms: int
    partitions: Sequence[PartitionInspection]
    ages: Sequence[Bin]
    retention: Retention
    reading: ReadExtent
    contents: Contents
    skew: Skew | None
    failures: SplitFailures | None
    rule_status: RuleStatus = field(default_factory=RuleStatus)
    remarks: tuple[str, ...] = ()
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def offsets(self) -> int:
        """Offsets that the backlog spans: an upper bound for its messages."""
        return sum(part.offsets for part in self.partitions)

    @property
    def messages(self) -> int:
        """Number of messages; estimated unless everything was read."""
        return sum(part.messages for part in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of keys and values; estimated unless everything was read."""
        return sum(part.bytes for part in self.partitions)

    @property
    def sub_messages(self) -> int | None:
        """Number of sub-messages, estimated unless everything was read; None without a handler."""
        return None if self.skew is None else round(self.skew.fan_out.mean * self.messages)

    @property
    def lost(self) -> int:
        """Offsets that were deleted before the group handled them."""
        return sum(part.lost for part in self.partitions)

    @property
    def age_s(self) -> float | None:
        """Age of the oldest unprocessed message, in seconds; None if none has a timestamp."""
        return max((p.age_s for p in self.partitions if p.age_s is not None), default=None)

    @property
    def arrivals_per_s(self) -> float:
        """Offsets that were added each second, over the last ``ARRIVALS_S`` seconds."""
        return sum(part.arrivals_per_s for part in self.partitions)

    @property
    def expiry(self) -> Expiry | None:
        """The earliest deletion of a partition's head by retention; None if none is foreseen."""
        return earliest_expiry(part.expiry for part in self.partitions)

    @property
    def retention_s(self) -> float | None:
        """Seconds until retention may delete the head of the backlog, at the earliest."""
        return None if self.expiry is None else self.expiry.in_s

    @property
    def offline(self) -> list[int]:
        """Partitions without a leader."""
        return [part.partition for part in self.partitions if part.offline]

    @property
    def under_replicated(self) -> list[int]:
        """Partitions that have a leader, and some replicas that don't keep up with it."""
        return [p.partition for p in self.partitions if p.under_replicated and not p.offline]

    @property
    def hot(self) -> ItemShare | None:
        """The hottest sub-key, if it has enough of the work to limit a drain; otherwise None."""
        hottest = self.skew.hottest[0] if self.skew and self.skew.hottest else None
        if hottest is None or hottest.share < HOT_SHARE or hottest.count < HOT_MESSAGES:
            return None
        return hottest

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``-o json``: all fields, with partitions by number, and figures."""
        fields = builtins(self)
        del fields["rule_status"]
        return {
            "status": "ok",
            "exit_code": EXIT_DONE,
            **fields,
            **{name: builtins(getattr(self, name)) for name in _FIGURES},
            "arrivals_over_s": ARRIVALS_S,
            "undecided": dict(self.rule_status.undecided),
            "why": dict(self.rule_status.why),
            "partitions": builtins({part.partition: part for part in self.partitions}),
        }


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """A request to inspect a backlog.

    Attributes:
        partitions: the partitions to inspect; all of them if it is empty.
        messages: how many messages to read; None for all.
        skip: expressions that select the sub-messages that a drain would skip.
        commits: whether the drain to come would move the group.
    """

    topic: str
    group: str
    handler: LoadedHandler | None = None
    partitions: tuple[int, ...] = ()
    from_: str = "committed"
    until: str = "end"
    messages: int | None = SAMPLE_MESSAGES
    seed: int = 0
    skip: tuple[str, ...] = ()
    commits: bool = True

    @property
    def range(self) -> DrainRange:
        """The range that a drain with these settings would have. Raises UsageError."""
        return DrainRange(parse_from(self.from_), parse_until(self.until), self.commits)


def inspect_backlog(
    cluster: Cluster, request: InspectRequest, progress: OnProgress = lambda *_: None
) -> Inspection:
    """Inspect a backlog; the group may be active meanwhile.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        Refused: when the backlog can't be read, or when nothing in it has a key of ``--key``.
        UsageError: when ``from_`` or ``until`` make no sense, or ``skip`` comes without a handler.
    """
    if request.skip and request.handler is None:
        raise UsageError(
            "rules need sub-messages, and only a handler's split makes them",
            hint="Add --handler. With `count`, each message is one sub-message.",
        )
    topic, group = cluster.topic(request.topic), cluster.group(request.group, right="DESCRIBE")
    wanted = request.partitions or topic.partitions
    led = [number for number in wanted if topic.leaders.get(number) != ""] or wanted
    backlog = request.range.freeze(cluster, request.topic, request.group, led, only_show=True)
    ahead = outlook(cluster, backlog, cluster.topic_config(request.topic))
    taken_ms = ahead.taken_ms
    dated = [head.timestamp for head in ahead.heads.values() if head.timestamp is not None]
    oldest_ms = min(dated, default=None)
    survey, reading = _read(cluster, backlog, request, progress)

    def of(number: int) -> PartitionInspection:
        nothing = PartitionBacklog(number, 0, 0, None, 0, 0, None)
        part = backlog.partitions.get(number, nothing)
        bytes_per_offset = survey.density(number) * survey.mean_bytes(number)
        return PartitionInspection(
            **asdict(part),
            leader=topic.leaders.get(number, ""),
            replicas=topic.replicas[number],
            messages=round(part.offsets * survey.density(number)),
            bytes=round(part.offsets * bytes_per_offset),
            age_s=ahead.age_s(number),
            arrivals_per_s=ahead.arrivals_per_s(part),
            expiry=ahead.expiry(part, bytes_per_offset),
        )

    return Inspection(
        topic=request.topic,
        topic_id=topic.topic_id,
        cluster_id=backlog.cluster_id,
        group=group,
        isolation=backlog.isolation,
        handler=request.handler.absolute_reference if request.handler else None,
        taken_ms=taken_ms,
        partitions=tuple(of(number) for number in sorted(set(wanted))),
        ages=() if oldest_ms is None else _ages(cluster, backlog, oldest_ms, taken_ms),
        retention=ahead.retention,
        reading=reading,
        contents=survey.contents,
        skew=survey.skew,
        failures=survey.failures,
        rule_status=survey.rule_status,
        remarks=(*backlog.remarks, *backlog.checks, *survey.warnings()),
        open_transactions=backlog.open_transactions,
    )


def _read(
    cluster: Cluster, backlog: Backlog, request: InspectRequest, progress: OnProgress
) -> tuple[Survey, ReadExtent]:
    begun_s = time.monotonic()
    survey = Survey(request.handler, request.skip, request.range.times)
    full = True
    if request.messages is None:
        reached = {number: part.start for number, part in backlog.partitions.items()}
        spans = [Span(n, part.start, part.end) for n, part in backlog.partitions.items()]
        for batch in read_spans(cluster.settings, backlog.topic, backlog.topic_id, READER, spans):
            number = batch.span.partition
            survey.take(number, batch.messages, batch.reached - reached[number])
            reached[number] = batch.reached
            progress(survey.offsets, backlog.offsets)
    else:
        sample = sample_backlog(cluster, backlog, request.messages, request.seed)
        for window in sample.windows:
            survey.take(window.partition, window.messages, window.end - window.start)
        full = sample.whole
    return survey, ReadExtent(full, survey.offsets, time.monotonic() - begun_s)


def _ages(cluster: Cluster, backlog: Backlog, oldest_ms: int, now_ms: int) -> tuple[Bin, ...]:
    """Return the share of the backlog's offsets by age in seconds, the youngest first.

    For a point in time, Kafka reports the first offset that is not older. So the result is exact if
    timestamps rise with the offsets. If they don't, some offsets count as younger than they are.
    """
    step_s = (now_ms - oldest_ms) / 1000 / AGE_BINS
    if not backlog.offsets or step_s <= 0:
        return ()
    shares = [0.0]
    for part in range(1, AGE_BINS):
        at_ms = round(now_ms - part * step_s * 1000)
        found = cluster.offset_at(backlog.topic, backlog.partitions, at_ms)
        younger = 0
        for number, bounds in backlog.partitions.items():
            first = found[number]
            younger += 0 if first is None else max(0, bounds.end - max(first, bounds.start))
        shares.append(max(shares[-1], younger / backlog.offsets))
    shares.append(1.0)
    return tuple(
        Bin(part * step_s, (part + 1) * step_s, shares[part + 1] - shares[part])
        for part in range(AGE_BINS)
    )
