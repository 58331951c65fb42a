"""Limits to show: before they are measured, and with boundaries of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from core.limit_samples import measured
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.traffic import TrafficTargets
from drainer.limits.measure import PreparedLimits
from drainer.limits.search.boundary import MeasuredLimits
from drainer.limits.search.trial import End
from drainer.limits.view import show_limits_action
from operations.modelled import SETTINGS, nothing_known

from . import samples

TOPIC = "drainer.limits.20261121-190312-0a1b2c"
PATH = Path("my limits.json")


def previewed() -> str:
    """The preview of a run that removes what another one left behind."""
    terminal, _, err = samples.terminal(width=80)
    targets = TrafficTargets((TOPIC, f"{TOPIC[:-1]}e"), 10, 5)
    known = nothing_known(replace(SETTINGS, topics=2))
    prepared = PreparedLimits(LimitsFile(PATH), known, None, targets, (f"{TOPIC[:-1]}d",))
    show_limits_action(terminal, prepared, "broker-1:9092", "local[*]")
    return err.getvalue()


def of_each_end() -> MeasuredLimits:
    """Limits with a boundary of each kind of end, and one that more trials would narrow."""
    ends: dict[int, dict[str, Any]] = {
        100: {"end": End.MOST, "high": None},
        1_000: {"end": End.WIDE, "high": None},
        10_000: {"end": End.CLIENTS, "high": None, "why": ("round trip 80 ms",)},
        20_000: {"end": End.NONE, "messages_per_s": 0.0, "low": 0.0, "why": ("idle 14%",)},
        30_000: {"end": End.WIDE, "low": 300.0},
        40_000: {"end": End.WIDE, "low": 300.0, "trials": SETTINGS.trials},
        50_000: {"end": End.UNCLEAR},
    }
    found = measured(dict.fromkeys(ends, 400.0), groups=5)
    pairs = zip(found.boundaries, ends.values(), strict=True)
    return replace(found, boundaries=tuple(replace(one, **more) for one, more in pairs))
