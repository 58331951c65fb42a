"""Redriving dead letters: a drain of their topic, whose handler gets them as what they were.

It keeps one plan for each dead-letter topic and group. Letters that were not meant stay pending
there, so that the next redrive finds them, whatever was redriven around them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from drainer.core.failing.failures import FailureSettings
from drainer.core.failing.redrive import RedriveSettings
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress
from drainer.core.rules.settings import RuleSettings
from drainer.engine.settings import LocalSettings
from drainer.errors import PlanRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.topic import LogBounds
from drainer.loader import LoadedHandler
from drainer.operations.resume import prepare_resume
from drainer.operations.start import DELETED, Prepared, Request, prepare
from drainer.store.plan_file import LoadedPlan, PlanFile


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Which letters are redriven, and through what."""

    topic: str
    handler: LoadedHandler
    redrive: RedriveSettings
    failures: FailureSettings
    group: str | None = None
    plan_path: Path | None = None
    client_config: Path | None = None
    rules: RuleSettings = field(default_factory=RuleSettings)


def prepare_redrive(cluster: Cluster, request: RedriveRequest, running: LocalSettings) -> Prepared:
    """Looks whether letters can be redriven, all that there are now; touches nothing.

    Goes on with the plan of an earlier redrive if that left some. Raises Refused when it can't.
    """
    group = request.group or f"drainer.redrive.{request.topic}"
    path = request.plan_path or Path(f"{request.topic}.redrive.plan.json")
    failures = replace(request.failures, dead_letter_topic=request.topic)
    if path.exists():
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
    if plan.redrive is None or (plan.topic, plan.group) != (request.topic, group):
        raise PlanRefused(
            f"{path} is the plan of another drain: topic {plan.topic}, group {plan.group}",
            hint="name another file with --plan",
        )
    numbers = cluster.topic(request.topic).partitions
    logs = cluster.log_bounds(request.topic, numbers, plan.isolation)
    partitions = {n: _reaching(plan.partitions.get(n), logs[n]) for n in numbers}
    known = plan.claims[ALL]
    claims = {
        selector: {
            n: _left(claim[n], logs[n]) if n in claim else Progress(part.start)
            for n, part in partitions.items()
        }
        for selector, claim in plan.claims.items()
    }
    deleted = [
        f"partition {n}: {count:,} offsets before {logs[n].start} that were not redriven are passed"
        f" over, {DELETED}"
        for n, progress in known.items()
        if (count := _pending_before(progress, logs[n].start)) > 0
    ]
    going_on = replace(
        plan,
        partitions=partitions,
        claims=claims,
        handler=request.handler.absolute_reference,
        redrive=request.redrive,
    )
    return going_on, deleted


def _reaching(part: PartitionPlan | None, log: LogBounds) -> PartitionPlan:
    if part is None:  # the topic has got more partitions
        return PartitionPlan(start=log.start, end=log.end, prior=None, committed=None)
    return replace(part, end=max(part.end, log.end))


def _left(progress: Progress, log: LogBounds) -> Progress:
    return progress.merge(replace(progress, watermark=max(progress.watermark, log.start)))


def _pending_before(progress: Progress, offset: int) -> int:
    finished = sum(min(end, offset) - first for first, end in progress.finished if first < offset)
    return offset - progress.watermark - finished
