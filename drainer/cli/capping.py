"""The option ``--limits``: what the brokers were measured to bear, and a drain is held to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drainer.limits.capping import load_limits
from drainer.policy.rate_cap import CapCurve

NONE = "none"

_PANEL = "What the brokers bear"

LimitsOption = Annotated[
    Path | None,
    typer.Option(
        "--limits",
        envvar="DRAINER_LIMITS",
        metavar="FILE",
        help="Read no faster than the safe cap of these limits (`drainer limits --out FILE`) at"
        " the size of this drain's messages, and write no faster with produce. Kept in the plan.",
        rich_help_panel=_PANEL,
    ),
]
LimitsAnew = Annotated[
    str | None,
    typer.Option(
        "--limits",
        envvar="DRAINER_LIMITS",
        metavar="FILE|none",
        help="Other limits than those in the plan, or none any more.",
        rich_help_panel=_PANEL,
    ),
]


def given_limits(path: Path | None) -> CapCurve | None:
    """Raises LimitsRefused."""
    return None if path is None else load_limits(path)


def limits_anew(text: str | None, known: CapCurve | None) -> CapCurve | None:
    """What is known, unless other limits or none are said. Raises LimitsRefused."""
    if text is None:
        return known
    return None if text.strip().lower() == NONE else load_limits(Path(text))
