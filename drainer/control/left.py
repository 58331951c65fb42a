"""Drains that were stopped or killed, found by their plans."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

from drainer.control.client import Found
from drainer.control.wire import About
from drainer.core.plan import OffsetPlan
from drainer.errors import DrainerError
from drainer.ownership import read_own
from drainer.store.plan_file import PLANS, PlanFile


def left_in(folder: Path) -> Iterator[Found]:
    """Drains whose plan is in a folder, that are not done and that no process works on.

    Neither journals nor a state elsewhere are read: they may have done a little more. Skips plans
    that other users could have written, and what is not a plan.
    """
    for name in sorted(folder.glob(PLANS)):
        with suppress(OSError, ValueError, DrainerError):
            if not name.is_file():
                continue
            path = name.resolve()
            plan = OffsetPlan.decode(read_own(path))
            plan.check()
            if not plan.complete and not PlanFile(path).is_held:
                yield _found(path, plan)


def _found(path: Path, plan: OffsetPlan) -> Found:
    engine = "process" if plan.state is None else "spark"
    about = About(str(path), plan.topic, plan.group, plan.drain_id, engine, plan.updated)
    return Found(path, os.geteuid(), about, None, inf, 0, plan)
