"""Inspecting a backlog: how bad it is, and why. Reads, and neither handles nor commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from drainer.errors import UsageError
from drainer.insight.ages import age_bins
from drainer.insight.inspection import Inspection, PartitionInspection, ReadExtent
from drainer.insight.retention import READER, Outlook, outlook
from drainer.insight.statistics.contents import NO_KEY, Contents
from drainer.insight.statistics.sketch import Share
from drainer.insight.statistics.skew import Rule, Skew
from drainer.insight.survey import Survey, Surveyed
from drainer.kafka.backlog import (
    Backlog,
    PartitionBacklog,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster, Replicas, TopicInfo, limit
from drainer.kafka.sample import Sample, sample_backlog
from drainer.kafka.spans import Span, read_spans
from drainer.loader import LoadedHandler
from drainer.mask import mask_text

SAMPLE_MESSAGES, SAMPLE_MOST = 20_000, 500_000  # a sample lies in memory, half a KiB a message

Progress = Callable[[int, int], None]  # (offsets that are behind it, offsets in all)
SurveyAll = Callable[[Backlog, Progress], tuple[Surveyed, float]]  # and how long reading took, in s


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What is to be inspected. No partitions means all of them.

    ``messages`` is how many to read, None for all. ``rule`` names what would leave a sub-message
    out.
    """

    topic: str
    group: str
    handler: LoadedHandler | None = None
    partitions: tuple[int, ...] = ()
    from_: str = "committed"
    until: str = "end"
    messages: int | None = SAMPLE_MESSAGES
    seed: int = 0
    rule: Rule | None = None


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
    if look.rule is not None and look.handler is None:
        raise UsageError(
            "rules are asked about sub-messages, and only a handler's split makes them",
            hint="name it with --handler; count has the default one, a sub-message a message",
        )
    topic, group = cluster.topic(look.topic), cluster.group(look.group, right="DESCRIBE")
    asked = look.partitions or topic.partitions
    led = [number for number in asked if topic.leaders.get(number) != ""] or asked
    from_, until = parse_from(look.from_), parse_until(look.until)
    backlog = freeze(cluster, look.topic, look.group, led, from_, until, to_look=True)
    config = cluster.topic_config(look.topic)
    ahead = outlook(cluster, backlog, config)
    taken_ms = ahead.taken_ms
    dated = [head.timestamp for head in ahead.heads.values() if head.timestamp is not None]
    oldest_ms = min(dated, default=None)
    survey, reading = _read(cluster, backlog, look, progress, survey_all)
    fraction = survey.offsets / backlog.offsets if backlog.offsets else 1.0

    def of(number: int) -> PartitionInspection:
        part = backlog.partitions.get(number)
        if part is None:
            return _offline(topic, number)
        return _inspected(topic, part, survey, ahead)

    return Inspection(
        topic=look.topic,
        topic_id=topic.topic_id,
        cluster_id=backlog.cluster_id,
        group=group,
        isolation=backlog.isolation,
        handler=look.handler.absolute_reference if look.handler else None,
        taken_ms=taken_ms,
        partitions=tuple(of(number) for number in sorted(set(asked))),
        ages=() if oldest_ms is None else age_bins(cluster, backlog, oldest_ms, taken_ms),
        retention=ahead.retention,
        min_in_sync=limit(config.get("min.insync.replicas")),
        reading=reading,
        contents=_masked_contents(survey.contents(fraction, taken_ms)),
        skew=_masked_skew(survey.skew(fraction)),
        failures=survey.failures,
        remarks=backlog.remarks,
        held=backlog.held,
    )


def _masked_contents(found: Contents) -> Contents:
    return replace(found, hottest_keys=_masked(found.hottest_keys))


def _masked_skew(found: Skew | None) -> Skew | None:
    return None if found is None else replace(found, hottest=_masked(found.hottest))


def _masked(shares: Sequence[Share]) -> tuple[Share, ...]:
    return tuple(
        share if share.name == NO_KEY else replace(share, name=mask_text(share.name))
        for share in shares
    )


def _read(
    cluster: Cluster,
    backlog: Backlog,
    look: InspectRequest,
    progress: Progress,
    survey_all: SurveyAll | None,
) -> tuple[Surveyed, ReadExtent]:
    full = look.messages is None
    survey: Surveyed
    if survey_all is not None:
        survey, read_s = survey_all(backlog, progress)
    elif look.messages is None:
        survey, read_s = _read_all(cluster, backlog, look, progress)
    else:
        sample = sample_backlog(cluster, backlog, look.messages, look.seed)
        survey, read_s, full = _surveyed(sample, look), sample.read_s, sample.whole
    return survey, ReadExtent(
        full=full,
        offsets=survey.offsets,
        windows=survey.windows,
        seed=look.seed,
        read_s=read_s,
        bytes=survey.bytes,
        split_s=survey.split_s,
        tasks=survey.tasks,
    )


def _surveyed(sample: Sample, look: InspectRequest) -> Survey:
    survey = Survey(look.handler, look.rule)
    for window in sample.windows:
        survey.take(window.partition, window.messages, window.end - window.start)
        survey.end_window()
    return survey


def _read_all(
    cluster: Cluster, backlog: Backlog, look: InspectRequest, progress: Progress
) -> tuple[Survey, float]:
    survey = Survey(look.handler, look.rule)
    begun_s = time.monotonic()
    reached = {number: part.start for number, part in backlog.partitions.items()}
    spans = [Span(n, part.start, part.end) for n, part in backlog.partitions.items()]
    for batch in read_spans(cluster.settings, backlog.topic, backlog.topic_id, READER, spans):
        number = batch.span.partition
        survey.take(number, batch.messages, batch.reached - reached[number])
        reached[number] = batch.reached
        progress(survey.offsets, backlog.offsets)
    survey.end_window()
    return survey, time.monotonic() - begun_s - survey.split_s


def _offline(topic: TopicInfo, number: int) -> PartitionInspection:
    return PartitionInspection(number, "", topic.replicas.get(number, Replicas((), ())))


def _inspected(
    topic: TopicInfo, part: PartitionBacklog, survey: Surveyed, ahead: Outlook
) -> PartitionInspection:
    number = part.partition
    bytes_of_offset = survey.density(number) * survey.mean_bytes(number)
    head = ahead.heads.get(number)
    head_ms = None if head is None else head.timestamp
    return PartitionInspection(
        partition=number,
        leader=topic.leaders.get(number, ""),
        replicas=topic.replicas.get(number, Replicas((), ())),
        start=part.start,
        end=part.end,
        committed=part.committed,
        log_start=part.log_start,
        log_end=part.log_end,
        messages=round(part.offsets * survey.density(number)),
        bytes=round(part.offsets * bytes_of_offset),
        lost=0 if part.committed is None else max(0, part.log_start - part.committed),
        head_offset=None if head is None else head.offset,
        head_ms=head_ms,
        age_s=None if head_ms is None else max(0.0, (ahead.taken_ms - head_ms) / 1000),
        arrivals_per_s=ahead.arrivals_per_s(part),
        doom=ahead.doom(part, bytes_of_offset),
    )
