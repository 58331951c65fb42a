"""Two measurements of limits side by side: what moved, and by more than they are unsure of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drainer.errors import LimitsRefused
from drainer.limits.search.boundary import Boundary, Limits, plain
from drainer.limits.search.settings import Value


@dataclass(frozen=True, slots=True)
class Change:
    """One value of the axis in both.

    ``ratio`` is after / before in messages/s; None when nothing was safe before. It is ``certain``
    when the two ranges, in which the boundaries lie, have nothing in common.
    """

    value: Value
    before: Boundary
    after: Boundary
    ratio: float | None
    certain: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """``settings`` names what was asked differently; ``only_*`` are values of one alone."""

    changes: tuple[Change, ...]
    settings: tuple[str, ...]
    same_cluster: bool
    only_before: tuple[Value, ...]
    only_after: tuple[Value, ...]

    def as_json(self) -> dict[str, Any]:
        return plain(self)


def compare(before: Limits, after: Limits) -> Comparison:
    """Raises LimitsRefused when they varied different things or have no value in common."""
    axis = before.settings.axis
    if axis is not after.settings.axis:
        raise LimitsRefused(
            f"one has boundaries over {axis.value}, the other over {after.settings.axis.value}",
            hint="compare two measurements that varied the same",
        )
    earlier = {each.value: each for each in before.boundaries}
    later = {each.value: each for each in after.boundaries}
    both = [value for value in earlier if value in later]
    if not both:
        raise LimitsRefused(
            f"there is no {axis.value} of which both have a boundary",
            hint="measure the same values in both",
        )
    return Comparison(
        changes=tuple(_change(earlier[value], later[value]) for value in both),
        settings=before.settings.differences(after.settings),
        same_cluster=before.cluster_id == after.cluster_id,
        only_before=tuple(value for value in earlier if value not in later),
        only_after=tuple(value for value in later if value not in earlier),
    )


def _change(before: Boundary, after: Boundary) -> Change:
    apart = _below(before, after) or _below(after, before)
    ratio = after.messages_per_s / before.messages_per_s if before.messages_per_s else None
    return Change(before.value, before, after, ratio, apart)


def _below(one: Boundary, other: Boundary) -> bool:
    return one.high is not None and one.high < other.low
