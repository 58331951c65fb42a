"""The option ``--limits``: what the brokers were measured to bear, and a drain is held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from drainer import wings
from drainer.cli.groups import option
from drainer.kafka.cluster import Cluster
from drainer.operations.start import Prepared
from drainer.policy.rate_cap import CapCurve

NONE = "none"

_PANEL = "What the brokers bear"


def load_limits(text: str) -> CapCurve:
    """The curve of a file of limits. Raises LimitsRefused."""
    curve: CapCurve = wings.load(wings.Hook.LOAD_LIMITS)(Path(text))
    return curve


Limits: TypeAlias = Annotated[
    CapCurve | None,
    option(
        "--limits",
        default=None,
        parse=load_limits,
        panel=_PANEL,
        metavar="FILE",
        help="Read no faster than the safe cap of these limits (`drainer limits --out FILE`) at"
        " the size of this drain's messages, and write no faster with produce. Kept in the plan.",
    ),
]
OtherLimits: TypeAlias = Annotated[
    str | None,
    option(
        "--limits",
        default=None,
        panel=_PANEL,
        metavar="FILE|none",
        help="Other limits than those in the plan, or none any more.",
    ),
]


def other_limits(text: str | None, known: CapCurve | None) -> CapCurve | None:
    """What is known, unless other limits or none are said. Raises LimitsRefused."""
    if text is None:
        return known
    return None if text.strip().lower() == NONE else load_limits(text)


def settle_cap(cluster: Cluster, prepared: Prepared, curve: CapCurve | None) -> Prepared:
    """What was prepared, held to this curve. Raises LimitsRefused when nothing is safe by it."""
    if curve is None:
        return replace(prepared, plan=replace(prepared.plan, limits=None))
    capped: Prepared = wings.load(wings.Hook.SETTLE_CAP)(cluster, prepared, curve)
    return capped
