"""Capping a drain: the limits that were measured, at this drain's own message size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from drainer.errors import LimitsRefused
from drainer.insight.measurement import remaining
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_backlog
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import Cap, Limits
from drainer.operations.start import Prepared

SAMPLED = 2_000  # messages, to know their mean size


def load_limits(path: Path) -> Limits:
    """What a cap is drawn from: the limits of a file, without their trials.

    Raises LimitsRefused when it can't be read, or is something else.
    """
    limits = LimitsFile(path).load()
    try:
        limits.cap(1)  # of other axes there is none
    except LimitsRefused as error:
        raise LimitsRefused(f"{path}: {error}", hint=error.hint) from error
    return replace(limits, trials=(), baseline={})


def settle_cap(cluster: Cluster, prepared: Prepared, limits: Limits | None) -> Prepared:
    """With these limits in its plan, and what they allow for at the size of its messages, of which
    a few are read.

    Raises LimitsRefused when they allow for nothing; Refused when the topic can't be read.
    """
    plan = replace(prepared.plan, limits=limits)
    if limits is None:
        return replace(prepared, plan=plan)
    warnings = list(prepared.action.warnings)
    if limits.cluster_id != plan.cluster_id:
        warnings.append(
            f"the limits were measured on another cluster, {limits.cluster_id}: does it bear as"
            " much as this one?"
        )
    sample = sample_backlog(cluster, remaining(cluster, plan), SAMPLED)
    messages = sample.messages
    cap: Cap | None = None
    if messages:
        cap = limits.cap(max(1.0, sample.read_bytes / len(messages)))
    action = replace(prepared.action, cap=cap, warnings=tuple(warnings))
    return replace(prepared, plan=plan, action=action)
