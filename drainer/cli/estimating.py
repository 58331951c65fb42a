"""What ``estimate`` and ``run --dry-run`` share: the options, and what they mean."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.values import parse_deadline
from drainer.core.latency import Latency
from drainer.errors import UsageError
from drainer.operations.latency import latency_from

_HOW_LONG = "How long it will take"

LatencyOption = Annotated[
    str | None,
    typer.Option(
        "--latency",
        envvar="DRAINER_LATENCY",
        metavar="10ms|p50=8ms,p99=120ms",
        help="How long the handler takes for one sub-message: one duration, or quantiles.",
        rich_help_panel=_HOW_LONG,
    ),
]
LatencyFrom = Annotated[
    Path | None,
    typer.Option(
        "--latency-from",
        envvar="DRAINER_LATENCY_FROM",
        metavar="FILE",
        help="The same from an earlier drain of this handler: its plan, or what --json printed.",
        rich_help_panel=_HOW_LONG,
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        envvar="DRAINER_DEADLINE",
        metavar="08:00|6h|ISO-TIME",
        help="By when it has to be drained: the next 08:00 here, a time from now, or a moment."
        " Says whether that will be met, as soon as it won't, and why.",
        rich_help_panel=_HOW_LONG,
    ),
]


def given_latency(latency: str | None, latency_from_: Path | None) -> tuple[Latency, str] | None:
    """The latency that was given and where it is from; None when there is none.

    Raises UsageError when both were given, or one can't be understood.
    """
    if latency is not None and latency_from_ is not None:
        raise UsageError(
            "--latency and --latency-from both say how long the handler takes",
            hint="say one of them",
        )
    if latency is not None:
        return Latency.parse(latency), f"--latency {latency}"
    if latency_from_ is not None:
        return latency_from(latency_from_), str(latency_from_)
    return None


def given_deadline(text: str | None) -> datetime | None:
    """The deadline, with its time zone. Raises UsageError."""
    return None if text is None else parse_deadline(text, datetime.now(UTC))
