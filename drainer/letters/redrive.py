"""Redriving dead letters: a drain of their topic, whose handler gets them as what they were.

It keeps one plan for each dead-letter topic and group. Letters that were not meant stay pending
there, so that the next redrive finds them, whatever was redriven around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from drainer.core.listed import name_lost
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress, Range, RangeSet, join_ranges
from drainer.engine.settings import LocalSettings
from drainer.errors import PlanRefused, Refused
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.spans import Span
from drainer.letters.reading import read_letters
from drainer.loader import LoadedHandler
from drainer.operations.resume import prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.policy.dead_letter import From
from drainer.policy.failures import FailureSettings
from drainer.policy.redrive import Redriven, RedriveProgress, RedriveSettings
from drainer.policy.rules.settings import RuleSettings
from drainer.store.plan_file import LoadedPlan, NotOwnPlan, PlanFile, default_path

SHOWN = 3  # origins in an error
ORIGINS_MOST = 100  # that are counted


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Which letters are redriven, and through what.

    ``mixed`` allows letters of several topics, groups or handlers at once.
    """

    topic: str
    handler: LoadedHandler
    redrive: RedriveSettings
    failures: FailureSettings
    group: str | None = None
    plan_path: Path | None = None
    client_config: Path | None = None
    rules: RuleSettings = field(default_factory=RuleSettings)
    mixed: bool = False


def redrive_progress(
    cluster: Cluster,
    topic: str,
    group: str | None = None,
    plan_path: Path | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> RedriveProgress:
    """What redrives of this group have finished.

    A plan that was not named and may be somebody else's work is left out, and ``warn`` is told.

    Raises PlanRefused when the plan is damaged, or one that was named is of another drain, and as
    the cluster does.
    """
    group = group or default_group(topic)
    found = cluster.topic(topic)
    committed = cluster.committed(group, topic, found.partitions)
    path = plan_path or default_plan(topic)
    plan: OffsetPlan | None = None
    try:
        if plan_path is not None or _is_there(path):
            plan = PlanFile(path).load().plan
    except NotOwnPlan as error:
        if plan_path is not None:
            raise
        warn(f"{error}; it is left out, so letters that were redriven may be listed")
    if plan is not None and not _is_of(plan, topic, group, found.topic_id):
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
        plan is not None or any(offset is not None for offset in committed.values()),
    )


def default_group(topic: str) -> str:
    """The group that keeps track of what was redriven of a dead-letter topic."""
    return f"drainer.redrive.{topic}"


def default_plan(topic: str) -> Path:
    """Where the plan of a redrive is kept."""
    return default_path(topic, "redrive")


def prepare_redrive(cluster: Cluster, request: RedriveRequest, running: LocalSettings) -> Prepared:
    """Looks whether letters can be redriven, all that there are now; touches nothing.

    Goes on with the plan of an earlier redrive if that left some. Raises Refused when it can't, or
    when the letters come from several topics, groups or handlers.
    """
    prepared = _prepare(cluster, request, running)
    if request.mixed:
        return prepared
    checks, warnings = _check_origin(cluster, request, prepared.plan)
    action = replace(
        prepared.action,
        checks=(*prepared.action.checks, *checks),
        warnings=(*prepared.action.warnings, *warnings),
    )
    return replace(prepared, action=action)


def _prepare(cluster: Cluster, request: RedriveRequest, running: LocalSettings) -> Prepared:
    group = request.group or default_group(request.topic)
    path = request.plan_path or default_plan(request.topic)
    failures = replace(request.failures, dead_letter_topic=request.topic)
    if _is_there(path):
        file = PlanFile(path)
        loaded = file.load()
        if not loaded.plan.complete:
            file.insist_free()
            plan, deleted = _going_on(cluster, path, loaded, request, group)
            prepared = prepare_resume(cluster, file, loaded, running, failures, plan, request.rules)
            warnings = (*prepared.action.warnings, *deleted)
            return replace(prepared, action=replace(prepared.action, warnings=warnings))
    return prepare(
        cluster,
        Request(
            topic=request.topic,
            group=group,
            handler=request.handler.redriving(request.redrive),
            plan_path=path,
            client_config=request.client_config,
            failures=failures,
            redrive=request.redrive,
            rules=request.rules,
        ),
        running,
    )


def _going_on(
    cluster: Cluster, path: Path, loaded: LoadedPlan, request: RedriveRequest, group: str
) -> tuple[OffsetPlan, list[str]]:
    # The plan of before, with the letters that have come since and without those that are gone;
    # and what a person should know of these.
    plan = loaded.plan
    if not _is_of(plan, request.topic, group):
        raise _of_another(path, plan)
    numbers = cluster.topic(request.topic).partitions
    logs = cluster.log_bounds(request.topic, numbers, plan.isolation)
    partitions = {n: _reaching(plan.partitions.get(n), logs[n]) for n in numbers}
    new = {n: Progress(part.start) for n, part in partitions.items() if n not in plan.partitions}
    going_on = replace(
        plan,
        partitions=partitions,
        claims={selector: {**claim, **new} for selector, claim in plan.claims.items()},
        handler=request.handler.absolute_reference,
        redrive=request.redrive,
    )
    gaps = going_on.gaps({n: log.start for n, log in logs.items()})
    deleted = []
    if gaps:
        deleted = [f"letters that were not redriven are not in the log any more: {name_lost(gaps)}"]
    return going_on.past(gaps), deleted


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # what this user may not look for is no plan of theirs
        return False


def _reaching(part: PartitionPlan | None, log: LogBounds) -> PartitionPlan:
    if part is None:  # the topic has got more partitions
        return PartitionPlan(log.start, log.end, None, None, log.leader_epoch)
    if log.end <= part.end:
        return part
    return replace(part, end=log.end, leader_epoch=log.leader_epoch)


def _is_of(plan: OffsetPlan, topic: str, group: str, topic_id: str | None = None) -> bool:
    return (
        plan.redrive is not None
        and (plan.topic, plan.group) == (topic, group)
        and topic_id in (None, plan.topic_id)
    )


def _of_another(path: Path, plan: OffsetPlan) -> PlanRefused:
    return PlanRefused(
        f"{path} is the plan of another drain: topic {plan.topic}, group {plan.group}",
        hint="name another file with --plan",
    )


def _finished_in(plan: OffsetPlan, partition: int) -> Sequence[Range]:
    # A redrive has one claim.
    progress = plan.claims[ALL].get(partition)
    return () if progress is None else ((0, progress.watermark), *progress.finished)


def _check_origin(
    cluster: Cluster, request: RedriveRequest, plan: OffsetPlan
) -> tuple[list[str], list[str]]:
    # What was found right, and what a person should know. Reads all letters that are left.
    finished = {n: RangeSet(join_ranges(_finished_in(plan, n))) for n in plan.partitions}
    spans = [
        Span(n, plan.watermark(n), part.end)
        for n, part in plan.partitions.items()
        if plan.watermark(n) < part.end
    ]
    origins: Counter[From] = Counter()
    for message in read_letters(cluster, request.topic, spans):
        if message.offset in finished[message.partition]:
            continue
        for sub in request.redrive.split(message):
            if isinstance(sub, Redriven):
                origins[sub.letter.from_] += 1
        if len(origins) > ORIGINS_MOST:
            break
    if len(origins) > 1:
        named = [f"{count:,} of {_named(origin)}" for origin, count in origins.most_common(SHOWN)]
        more = ["others"] if len(origins) > SHOWN else []
        raise Refused(
            f"the letters of {request.topic} come from different drains:"
            f" {'; '.join([*named, *more])}",
            hint="choose with --from-topic, --from-group or --from-handler, or add --mixed",
        )
    reference = request.handler.absolute_reference
    warnings = [
        f"these letters were given up by the handler {handler}, and go to {reference}"
        for _, _, handler in origins
        if handler != reference
    ]
    return [f"all letters come from {_named(origin)}" for origin in origins], warnings


def _named(origin: From) -> str:
    topic, group, handler = origin
    return f"topic {topic}, group {group}, handler {handler}"
