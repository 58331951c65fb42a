"""Redriving dead letters: a drain of their topic, whose handler gets them as what they were.

It keeps one plan for each dead-letter topic and group. Letters that were not meant stay pending
there, so that the next redrive finds them, whatever was redriven around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from drainer.core.claims import ALL
from drainer.core.listed import name_lost
from drainer.core.plan import OffsetPlan, PartitionPlan
from drainer.core.progress import Range, RangeSet, join_ranges
from drainer.engine.settings import LocalSettings
from drainer.errors import PlanRefused, Refused
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.spans import Span
from drainer.letters.overview import RedriveProgress
from drainer.letters.reading import read_letters
from drainer.loader import LoadedHandler
from drainer.operations.resume import prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.policy.dead_letter import From
from drainer.policy.redrive import Redriven, RedriveSettings
from drainer.store.plan_file import PlanPlace, default_path, plan_at

SHOWN = 3  # origins in an error
ORIGINS_MOST = 100  # that are counted


def redrive_progress(
    cluster: Cluster, topic: str, group: str, plan_path: Path | None = None
) -> RedriveProgress:
    """What redrives of this group have finished, as the group and the plan at its path have it.

    Raises PlanRefused when the plan is damaged, or one that was named is of another drain; NotOwn
    when somebody else could have written it; and as the cluster does.
    """
    found = cluster.topic(topic)
    committed = cluster.committed(group, topic, found.partitions)
    path = plan_path or default_plan(topic)
    plan = plan_at(path).load().plan if plan_path or plan_at(path).exists else None
    if plan is not None and not (_is_of(plan, topic, group) and plan.topic_id == found.topic_id):
        if plan_path is not None:
            raise _of_another(path, plan)
        plan = None
    if plan is not None and plan.complete:  # the next redrive goes by the group alone
        plan = None
    finished = {
        n: join_ranges([(0, offset or 0), *(_finished_in(plan, n) if plan is not None else ())])
        for n, offset in committed.items()
    }
    return RedriveProgress(
        group,
        None if plan is None else path,
        {n: RangeSet(ranges) for n, ranges in finished.items()},
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
) -> Prepared:
    """Looks whether letters can be redriven, all that there are now; touches nothing.

    Goes on with the plan of an earlier redrive if that left some. Raises Refused when it can't, or
    when the letters come from several topics, groups or handlers, unless ``mixed`` allows it.
    """
    handler = request.handler
    path = request.plan_path or default_plan(request.topic)
    request = replace(
        request,
        handler=handler.redriving(redrive),
        plan_path=path,
        failures=replace(request.failures, dead_letter_topic=request.topic),
        redrive=redrive,
    )
    prepared = _go_on(cluster, path, request, running) if plan_at(path).exists else None
    own_group = request.group == default_group(request.topic)
    prepared = prepared or prepare(cluster, request, running, new_group=own_group)
    if mixed:
        return prepared
    checks, warnings = _check_origin(cluster, redrive, handler, prepared.plan)
    action = replace(
        prepared.action,
        checks=(*prepared.action.checks, *checks),
        warnings=(*prepared.action.warnings, *warnings),
    )
    return replace(prepared, action=action)


def _go_on(
    cluster: Cluster, path: PlanPlace, request: Request, running: LocalSettings
) -> Prepared | None:
    # With the plan of before; None when that is complete.
    file = plan_at(path)
    loaded = file.load()
    if loaded.plan.complete:
        return None
    file.insist_free()
    if not _is_of(loaded.plan, request.topic, request.group):
        raise _of_another(path, loaded.plan)
    numbers = cluster.topic(request.topic).partitions
    logs = cluster.log_bounds(request.topic, numbers, loaded.plan.isolation)
    plan = replace(
        extended(loaded.plan, logs),
        handler=request.handler.absolute_reference,
        redrive=request.redrive,
    )
    gaps = plan.gaps({n: log.start for n, log in logs.items()})
    prepared = prepare_resume(
        *(cluster, file, loaded, running, request.failures, plan.past(gaps), request.rules),
        classes=plan.classes.asked([each.where for each in asked.each], only=asked.only)
        if (asked := request.classes).each
        else None,
    )
    if not gaps:
        return prepared
    deleted = f"retention deleted letters before their redrive: {name_lost(gaps)}"
    action = replace(prepared.action, warnings=(*prepared.action.warnings, deleted))
    return replace(prepared, action=action)


def extended(plan: OffsetPlan, logs: Mapping[int, LogBounds]) -> OffsetPlan:
    """The plan with all that its logs hold by now, in partitions that are new as well."""
    return plan.covering({n: _reaching(plan.partitions.get(n), log) for n, log in logs.items()})


def _reaching(part: PartitionPlan | None, log: LogBounds) -> PartitionPlan:
    if part is None:  # the topic has got more partitions
        return PartitionPlan(log.start, log.end, None, None, log.leader_epoch)
    if log.end <= part.end:
        return part
    return replace(part, end=log.end, leader_epoch=log.leader_epoch)


def _is_of(plan: OffsetPlan, topic: str, group: str) -> bool:
    return plan.redrive is not None and (plan.topic, plan.group) == (topic, group)


def _of_another(path: PlanPlace, plan: OffsetPlan) -> PlanRefused:
    return PlanRefused(
        f"{path} is the plan of another drain: topic {plan.topic}, group {plan.group}",
        hint="Name another file with --plan.",
    )


def _finished_in(plan: OffsetPlan, partition: int) -> Sequence[Range]:
    # A letter is one sub-message, and this claim knows of all messages.
    progress = plan.claims[ALL].get(partition)
    return () if progress is None else ((0, progress.watermark), *progress.finished)


def _check_origin(
    cluster: Cluster, redrive: RedriveSettings, handler: LoadedHandler, plan: OffsetPlan
) -> tuple[list[str], list[str]]:
    # What was found right, and what a person should know. Reads all letters that are left.
    finished = {n: RangeSet(join_ranges(_finished_in(plan, n))) for n in plan.partitions}
    spans = [
        Span(n, plan.watermark(n), part.end)
        for n, part in plan.partitions.items()
        if plan.watermark(n) < part.end
    ]
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
