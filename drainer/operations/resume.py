"""Resuming a drain: everything that is looked at before it goes on from its plan."""

from __future__ import annotations

from dataclasses import replace

from drainer.engine.action import PartitionAction, PlanOfAction
from drainer.engine.settings import LocalSettings
from drainer.kafka.cluster import Cluster
from drainer.loader import load_handler
from drainer.operations.examine import examine, group_offsets, insist
from drainer.operations.start import Prepared, resumed
from drainer.store.plan_file import LoadedPlan, PlanFile


def prepare_resume(
    cluster: Cluster, file: PlanFile, loaded: LoadedPlan, running: LocalSettings
) -> Prepared:
    """Looks whether the drain can go on; touches nothing.

    Raises PlanRefused or GroupActive when it can't.
    """
    checks = examine(cluster, loaded)
    insist(checks)
    plan = loaded.plan
    handler = load_handler(plan.handler)
    committed = group_offsets(cluster, loaded)
    action = PlanOfAction(
        topic=plan.topic,
        topic_id=plan.topic_id,
        cluster_id=plan.cluster_id,
        bootstrap_servers=cluster.settings.bootstrap_servers,
        group=plan.group,
        group_state=cluster.group(plan.group).state,
        handler=plan.handler,
        order=plan.order,
        concurrency=running.concurrency,
        buffer_bytes=running.buffer_bytes,
        isolation=plan.isolation,
        plan_path=file.path,
        partitions=tuple(
            PartitionAction(
                partition=number,
                start=plan.watermark(number),
                end=part.end,
                committed=committed[number],
                finished=sum(claim[number].messages.finished for claim in plan.claims.values()),
            )
            for number, part in plan.partitions.items()
        ),
        resumes=True,
        checks=tuple(check.text for check in checks),
    )
    # What the group was found at is what the drain goes on from.
    partitions = {n: replace(part, committed=committed[n]) for n, part in plan.partitions.items()}
    begun = replace(plan, partitions=partitions, generation=loaded.last_generation)
    return Prepared(action, resumed(begun), handler, loaded)
