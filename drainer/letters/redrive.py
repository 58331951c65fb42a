"""Redriving dead letters: a drain of their topic, whose handler gets them as what they were.

The group's offset and receipts in the topic say which letters earlier redrives finished. Letters
that were not meant stay pending, so that the next redrive finds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from drainer.core.claims import ALL
from drainer.core.listed import name_lost
from drainer.core.plan import OffsetPlan
from drainer.core.progress import RangeSet, join_ranges
from drainer.engine.settings import LocalSettings
from drainer.errors import PlanRefused, Refused, RightMissing
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.loss import cut_logs
from drainer.kafka.spans import Span
from drainer.letters.overview import RedriveProgress
from drainer.letters.reading import read_letters
from drainer.letters.receipts import (
    UNKNOWN_ELSEWHERE,
    finished_in,
    logs_of,
    read_receipts,
    taking_in,
    unfinished,
)
from drainer.loader import LoadedHandler
from drainer.operations.start import Prepared, Request, prepare
from drainer.policy.dead_letter import From
from drainer.policy.redrive import Redriven, RedriveSettings
from drainer.store.plan_file import default_path

SHOWN = 3  # origins in an error
ORIGINS_MOST = 100  # that are counted


def redrive_progress(cluster: Cluster, topic: str, group: str) -> RedriveProgress:
    """What redrives of this group have finished, as the group and their receipts have it.

    Raises as the cluster and ``read_receipts`` do.
    """
    numbers = cluster.topic(topic).partitions
    committed = cluster.committed(group, topic, numbers)
    logs = cluster.log_bounds(topic, numbers, cluster.settings.isolation)
    spans = [Span(n, max(committed[n] or 0, log.start), log.end) for n, log in logs.items()]
    found = read_receipts(cluster, topic, group, spans)
    finished = {
        n: ((0, offset or 0), *found.finished.get(n, ())) for n, offset in committed.items()
    }
    return RedriveProgress(
        group,
        {n: RangeSet(join_ranges(ranges)) for n, ranges in finished.items()},
        found.running(committed),
    )


def default_group(topic: str) -> str:
    """The group that keeps track of what was redriven of a dead-letter topic."""
    return f"drainer.redrive.{topic}"


def default_plan(topic: str) -> Path:
    """Where the plan of a redrive is kept."""
    return default_path(topic, "redrive")


def prepare_redrive(
    cluster: Cluster,
    request: Request,
    redrive: RedriveSettings,
    running: LocalSettings,
    *,
    mixed: bool = False,
    accept_repeats: bool = False,
) -> Prepared:
    """Looks whether letters can be redriven, all that there are now; touches nothing.

    Leaves out what earlier redrives of the group finished. Raises Refused when it can't; when one
    of them has not ended, unless ``accept_repeats`` or its plan is here; and when the letters come
    from several topics, groups or handlers, unless ``mixed`` allows it.
    """
    handler = request.handler
    request = replace(
        request,
        handler=handler.redriving(redrive),
        plan_path=request.plan_path or default_plan(request.topic),
        failures=replace(request.failures, dead_letter_topic=request.topic),
        redrive=redrive,
    )
    own_group = request.group == default_group(request.topic)
    prepared = prepare(cluster, request, running, new_group=own_group)
    plan, known, warnings = _known(cluster, prepared, accept_repeats=accept_repeats)
    checks, others = ((), ()) if mixed else _check_origin(cluster, redrive, handler, plan)
    try:
        cluster.topic(plan.topic, "WRITE")
    except RightMissing:
        warnings.append(UNKNOWN_ELSEWHERE.format(topic=plan.topic))
    action = replace(
        prepared.action,
        plan=plan,
        partitions=tuple(
            replace(each, start=plan.watermark(each.partition))
            for each in prepared.action.partitions
        ),
        checks=(*prepared.action.checks, *known, *checks),
        warnings=(*prepared.action.warnings, *warnings, *others),
    )
    return replace(prepared, action=action)


def _known(
    cluster: Cluster, prepared: Prepared, *, accept_repeats: bool
) -> tuple[OffsetPlan, list[str], list[str]]:
    # The plan with what earlier redrives finished, and what a person should know of that. Raises
    # PlanRefused if it is not known.
    plan, seen = prepared.plan, prepared.seen
    here = None if seen is None or seen.plan.complete else seen.plan
    spans = [Span(n, part.start, part.end) for n, part in plan.partitions.items()]
    found = read_receipts(cluster, plan.topic, plan.group, spans)
    if not accept_repeats:
        found.insist_ended(plan.committed, *([] if here is None else [here.drain_id]))
    plan, warnings = taking_in(plan, found.finished), []
    if here is not None:
        logs = logs_of(cluster, here)
        _insist_on_records(cluster, here, logs)
        plan = taking_in(plan, finished_in(cluster, here))
        # Where the group has an offset, prepare() has looked.
        gone = {n: 0 if plan.committed[n] else log.start for n, log in logs.items()}
        if gaps := here.gaps(gone):
            lost = name_lost(gaps)
            warnings.append(f"retention deleted letters before their redrive: {lost}")
    known = sum(map(plan.finished_above, plan.partitions))
    checks = [f"{known:,} offsets above the group's were redriven before"] if known else []
    return plan, checks, warnings


def _insist_on_records(cluster: Cluster, plan: OffsetPlan, logs: Mapping[int, LogBounds]) -> None:
    ends = {
        n: (part.end, part.leader_epoch)
        for n, part in plan.partitions.items()
        if part.leader_epoch is not None and logs[n].start < part.end
    }
    for number, said in cut_logs(cluster.settings, plan.topic, plan.group, ends).items():
        raise PlanRefused(
            f"partition {number}: the letters below offset {ends[number][0]} are not those that the"
            f" plan in this folder knows, as after an unclean leader election ({said})",
            hint="Name another file with --plan.",
        )


def _check_origin(
    cluster: Cluster, redrive: RedriveSettings, handler: LoadedHandler, plan: OffsetPlan
) -> tuple[Sequence[str], Sequence[str]]:
    # What was found right, and what a person should know. Reads all letters that are left.
    finished = {n: RangeSet(each.finished) for n, each in plan.claims[ALL].items()}
    spans = unfinished(plan, logs_of(cluster, plan))
    origins: Counter[From] = Counter()
    for message in read_letters(cluster, plan.topic, spans):
        if message.offset in finished[message.partition]:
            continue
        for sub in redrive.split(message):
            if isinstance(sub, Redriven):
                origins[sub.letter.from_] += 1
        if len(origins) > ORIGINS_MOST:
            break
    if len(origins) > 1:
        named = [f"{count:,} of {_named(origin)}" for origin, count in origins.most_common(SHOWN)]
        more = ["others"] if len(origins) > SHOWN else []
        raise Refused(
            f"the letters of {plan.topic} come from different drains: {'; '.join([*named, *more])}",
            hint="Name a topic, group or handler with --source, or add --mixed.",
        )
    reference = handler.absolute_reference
    warnings = [
        f"the handler {other} gave these letters up; now {reference} gets them"
        for _, _, other in origins
        if other != reference
    ]
    return [f"all letters come from {_named(origin)}" for origin in origins], warnings


def _named(origin: From) -> str:
    topic, group, handler = origin
    return f"topic {topic}, group {group}, handler {handler}"
