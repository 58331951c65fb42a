"""``--broker-limits FILE``: applies measured limits to a drain, at the size of its own messages."""

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

SAMPLED = 2_000  # So many messages are read to learn their mean size.


def load_limits(path: Path) -> CapCurve:
    """Return the cap by message size of a limits file.

    Raises LimitsRefused when the file can't be read, is something else, or when no traffic was
    safe.
    """
    measured = LimitsFile(path).load()
    with raised_as(LimitsRefused, about=f"{path}: "):
        curve = cap_curve(measured)
        curve.cap(1)  # It raises LimitsRefused if no traffic was safe.
    return curve


def within_limits(cluster: Cluster, prepared: Prepared, curve: CapCurve) -> Prepared:
    """Put the curve into the plan, and its cap on reading into the preview.

    The cap depends on the size of the messages, so a sample of the backlog is read.

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
