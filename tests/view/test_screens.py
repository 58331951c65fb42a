"""What each command shows on 80 columns, kept as files: look at the difference when one fails.

``DRAINER_WRITE_SCREENS=1 pytest tests/view/test_screens.py`` writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.letters import Sample, there_and_back
from drainer.certify.view import certificate_page
from drainer.core.parked import ParkedLane, ParkedLanes
from drainer.core.progress import Counts
from drainer.engine.status import FailureStatus, PartitionResult, Resuming
from drainer.errors import Halted
from drainer.insight.view.estimate import estimate_page
from drainer.insight.view.inspect import inspection_page
from drainer.letters.view import letter_page, overview_page
from drainer.policy.failures import FailureSettings, OnFailure
from drainer.testing import Certificate
from drainer.view.page import Page
from drainer.view.plan import plan_page
from drainer.view.preview import preview_page
from drainer.view.summary import summary_page
from letters.test_view import NONE, overview

from . import samples
from .test_certify import BROKEN, DOUBTFUL, FIGURES, GOOD, UNCHECKED
from .test_estimate import by, estimate
from .test_inspect import inspection, partition

FOLDER = Path(__file__).parent / "screens"
PLAN = Path("orders.plan")
HALTED = replace(
    samples.summary(),
    status="halted",
    exit_code=5,
    cause=Halted("orders/0 offset 7: ValueError: no such document", hint="Fix the handler."),
    messages=Counts(4_100, 4_051, 0, 0, 49),
    sub_messages=Counts(16_400, 16_203, 3, 0, 194),
    partitions={0: PartitionResult(1_000, 9_000, 5_000, 5_000)},
    failures=FailureStatus(410, 300, 2, errors=(("ValueError: no such document", 70),)),
    parked=ParkedLanes(1, (ParkedLane("'doc-1'", "orders/0/7[1]", "ValueError: no"),)),
    resuming=Resuming(("-c", "500"), ("--set api_token=…",)),
)
DEAD = FailureSettings(3, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="orders.dead")
SCREENS: dict[str, Callable[[], Page]] = {
    "run-preview": lambda: preview_page(samples.action(3, failures=DEAD, warnings=("careful",))),
    "run-done": lambda: summary_page(samples.summary(20)),
    "run-halted": lambda: summary_page(HALTED),
    "plan-show": lambda: plan_page(samples.plan(2), PLAN),
    "dead-list": lambda: overview_page(overview(Sample("a"), Sample("b")), NONE),
    "dead-show": lambda: letter_page(there_and_back(Sample("key", payload={"a": 1}))),
    "inspect": lambda: inspection_page(inspection(partition(0), partition(1, 5))),
    "estimate": lambda: estimate_page(
        estimate(verdict=replace(by(900, -100, 300), deadline=datetime(2026, 3, 14, 8, tzinfo=UTC)))
    ),
    "certify": lambda: certificate_page(
        Certificate([GOOD, DOUBTFUL, UNCHECKED, BROKEN], FIGURES, 3)
    ),
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_what_it_was(name: str) -> None:
    terminal, _, err = samples.terminal(width=80)
    terminal.present(SCREENS[name]())
    seen = "\n".join(line.rstrip() for line in err.getvalue().splitlines()) + "\n"
    kept = FOLDER / f"{name}.txt"
    if os.environ.get("DRAINER_WRITE_SCREENS"):
        kept.write_text(seen)
    assert seen == kept.read_text()
