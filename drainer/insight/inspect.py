"""Inspecting a backlog: how bad it is, and why. Reads, and neither handles nor commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from drainer.errors import UsageError
from drainer.insight.inspection import Bin, Inspection, PartitionInspection, ReadExtent
from drainer.insight.retention import READER, Outlook, outlook
from drainer.insight.survey import NO_RULES, Survey
from drainer.kafka.backlog import (
    Backlog,
    PartitionBacklog,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster, Replicas
from drainer.kafka.sample import sample_backlog
from drainer.kafka.spans import Span, read_spans
from drainer.loader import LoadedHandler
from drainer.policy.rules.settings import RuleSettings

SAMPLE_MESSAGES, SAMPLE_MOST = 20_000, 500_000  # a sample lies in memory, half a KiB a message
AGE_BINS = 10

Progress = Callable[[int, int], None]  # (offsets that are behind it, offsets in all)
SurveyAll = Callable[[Backlog], Survey]


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What is to be inspected. No partitions means all of them.

    ``messages`` is how many to read, None for all. ``rules`` are what would leave sub-messages out.
    """

    topic: str
    group: str
    handler: LoadedHandler | None = None
    partitions: tuple[int, ...] = ()
    from_: str = "committed"
    until: str = "end"
    messages: int | None = SAMPLE_MESSAGES
    seed: int = 0
    rules: RuleSettings = NO_RULES


def inspect(
    cluster: Cluster,
    look: InspectRequest,
    progress: Progress = lambda *_: None,
    survey_all: SurveyAll | None = None,
) -> Inspection:
    """Looks at a backlog; the group may be active meanwhile.

    ``survey_all`` reads all of it somewhere else than here, and knows the look's handler and rules.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        Refused: when nothing of it can be read.
        UsageError: when ``from_`` or ``until`` make no sense.
    """
    if look.rules and look.handler is None:
        raise UsageError(
            "rules are asked about sub-messages, and only a handler's split makes them",
            hint="name it with --handler; count has the default one, a sub-message a message",
        )
    topic, group = cluster.topic(look.topic), cluster.group(look.group, right="DESCRIBE")
    asked = look.partitions or topic.partitions
    led = [number for number in asked if topic.leaders.get(number) != ""] or asked
    from_, until = parse_from(look.from_), parse_until(look.until)
    backlog = freeze(cluster, look.topic, look.group, led, from_, until, to_look=True)
    ahead = outlook(cluster, backlog, cluster.topic_config(look.topic))
    taken_ms = ahead.taken_ms
    dated = [head.timestamp for head in ahead.heads.values() if head.timestamp is not None]
    oldest_ms = min(dated, default=None)
    survey, reading = _read(cluster, backlog, look, progress, survey_all)
    fraction = survey.offsets / backlog.offsets if backlog.offsets else 1.0

    def of(number: int) -> PartitionInspection:
        nothing = PartitionBacklog(number, 0, 0, None, 0, 0, None)
        part = backlog.partitions.get(number, nothing)
        return _inspected(
            part, topic.leaders.get(number, ""), topic.replicas[number], survey, ahead
        )

    return Inspection(
        topic=look.topic,
        topic_id=topic.topic_id,
        cluster_id=backlog.cluster_id,
        group=group,
        isolation=backlog.isolation,
        handler=look.handler.absolute_reference if look.handler else None,
        taken_ms=taken_ms,
        partitions=tuple(of(number) for number in sorted(set(asked))),
        ages=() if oldest_ms is None else _ages(cluster, backlog, oldest_ms, taken_ms),
        retention=ahead.retention,
        reading=reading,
        contents=survey.contents(fraction),
        skew=survey.skew(fraction),
        failures=survey.failures,
        rule_status=survey.rule_status,
        remarks=backlog.remarks,
        held=backlog.held,
    )


def _read(
    cluster: Cluster,
    backlog: Backlog,
    look: InspectRequest,
    progress: Progress,
    survey_all: SurveyAll | None,
) -> tuple[Survey, ReadExtent]:
    full, begun_s = look.messages is None, time.monotonic()
    survey = Survey(look.handler, look.rules)
    if survey_all is not None:
        survey = survey_all(backlog)
    elif look.messages is None:
        _read_all(cluster, backlog, survey, progress)
    else:
        sample = sample_backlog(cluster, backlog, look.messages, look.seed)
        for window in sample.windows:
            survey.take(window.partition, window.messages, window.end - window.start)
            survey.end_window()
        survey.read_s, full = time.monotonic() - begun_s, sample.whole
    return survey, ReadExtent(full, survey.offsets, survey.read_s, survey.tasks)


def _read_all(cluster: Cluster, backlog: Backlog, survey: Survey, progress: Progress) -> None:
    begun_s = time.monotonic()
    reached = {number: part.start for number, part in backlog.partitions.items()}
    spans = [Span(n, part.start, part.end) for n, part in backlog.partitions.items()]
    for batch in read_spans(cluster.settings, backlog.topic, backlog.topic_id, READER, spans):
        number = batch.span.partition
        survey.take(number, batch.messages, batch.reached - reached[number])
        reached[number] = batch.reached
        progress(survey.offsets, backlog.offsets)
    survey.end_window()
    survey.read_s = time.monotonic() - begun_s


def _inspected(
    part: PartitionBacklog, leader: str, replicas: Replicas, survey: Survey, ahead: Outlook
) -> PartitionInspection:
    number = part.partition
    bytes_of_offset = survey.density(number) * survey.mean_bytes(number)
    return PartitionInspection(
        **asdict(part),
        leader=leader,
        replicas=replicas,
        messages=round(part.offsets * survey.density(number)),
        bytes=round(part.offsets * bytes_of_offset),
        age_s=ahead.age_s(number),
        arrivals_per_s=ahead.arrivals_per_s(part),
        expiry=ahead.expiry(part, bytes_of_offset),
    )


def _ages(cluster: Cluster, backlog: Backlog, oldest_ms: int, now_ms: int) -> tuple[Bin, ...]:
    """The share of the backlog's offsets by age in seconds, the youngest first.

    Kafka tells the first offset that is no older than a time. It is exact where timestamps rise
    with the offsets; where they don't, an offset counts as old as what stands before it.
    """
    step_s = (now_ms - oldest_ms) / 1000 / AGE_BINS
    if not backlog.offsets or step_s <= 0:
        return ()
    shares = [0.0]
    for part in range(1, AGE_BINS):
        at_ms = round(now_ms - part * step_s * 1000)
        found = cluster.offset_at(backlog.topic, dict.fromkeys(backlog.partitions, at_ms))
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
