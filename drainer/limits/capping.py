"""Capping a drain: the limits that were measured, at this drain's own message size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from drainer.errors import LimitsRefused, raised_as
from drainer.kafka.backlog import remaining
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_backlog
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import cap_curve
from drainer.model.plan import OffsetPlan
from drainer.model.rate_cap import CapCurve
from drainer.operations.start import Prepared

SAMPLED = 2_000  # messages, to know their mean size


def load_limits(path: Path) -> CapCurve:
    """The curve of a file of limits.

    Raises LimitsRefused when it can't be read, is something else, or caps nothing.
    """
    measured = LimitsFile(path).load()
    with raised_as(LimitsRefused, about=f"{path}: "):
        curve = cap_curve(measured)
        curve.cap(1)  # which nothing may be safe for
    return curve


def within_limits(cluster: Cluster, prepared: Prepared, curve: CapCurve) -> Prepared:
    """Puts the curve into the plan, and its cap on reading messages of the backlog's size into the
    preview. A few of these are read.

    Raises LimitsRefused when nothing is safe at that size; Refused when the topic can't be read.
    """
    plan = OffsetPlan(replace(prepared.plan.terms, limits=curve), prepared.plan.account)
    action = replace(prepared.action, plan=plan)
    if curve.cluster_id not in ("", plan.terms.cluster_id):
        warning = (
            f"the limits were measured on another cluster, {curve.cluster_id}; this one may"
            " tolerate less"
        )
        action = replace(action, warnings=(*action.warnings, warning))
    sample = sample_backlog(cluster, remaining(cluster, plan), SAMPLED)
    if messages := sample.messages:
        action = replace(action, cap=curve.reading.cap(max(1.0, sample.read_bytes / len(messages))))
    return replace(prepared, action=action)
