"""Screens of all commands at 80x24, and some at 120x40, kept as files: see what differs.

``DRAINER_WRITE_SCREENS=1 pytest tests/view/test_screens.py`` writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from builders import a_cap, a_status, a_summary, changed, counts
from core.letters import Sample, there_and_back
from core.limit_samples import measured
from drainer.certify.cli import report_page
from drainer.cli.steering import running_page
from drainer.control.client import FoundDrain
from drainer.control.wire import About
from drainer.core.batches import Batching
from drainer.engine.preview import PartitionAction, ShownEngine
from drainer.errors import Halted, Signalled
from drainer.insight.cli.estimate import estimate_page
from drainer.insight.cli.inspect import inspection_page
from drainer.letters.cli.dead import letter_page, overview_page
from drainer.limits.view import limits_page
from drainer.model.account import Event, EventKind, ParkedLane, ParkedLanes
from drainer.model.deadline import DeadlineStatus
from drainer.model.latency import Latency
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan, OpenTransaction
from drainer.model.resuming import Resuming
from drainer.model.settings import AfterDead, FailureSettings, Limit, OnFailure
from drainer.model.status import FailureStatus, PartitionResult, Status
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.policy.redrive import NOT_MATCHED
from drainer.view.live import drawn, frame, start_line, status_line
from drainer.view.page import Page
from drainer.view.plan import plan_page
from drainer.view.preview import preview_page
from drainer.view.summary import summary_page
from drainer.view.terminal import Terminal
from letters.test_view import NONE, overview
from operations.modelled import nothing_known

from . import samples
from .estimates import by, estimate, measured_costs, of_classes
from .limits import PATH, of_each_end, previewed
from .test_certify import REPORT
from .test_inspect import empty, in_trouble, inspection, partition

FOLDER = Path(__file__).parent / "screens"
PLAN = Path("orders.plan")
LATENCY = Latency.of(100, 0.02, [n / 1_000 for n in range(101)])
LANES = tuple(ParkedLane(f"'doc-{n}'", f"orders/0/{n}[1]", "ValueError: no") for n in range(3))
PARKED = ParkedLanes(1_030, LANES)
HALTED = a_summary(
    status="halted",
    exit_code=5,
    cause=Halted("orders/0 offset 7: ValueError: no such document", hint="Fix the handler."),
    messages=counts(done=4_051, pending=49),
    sub_messages=counts(done=16_203, dead=3, pending=194),
    partitions={0: PartitionResult(1_000, 9_000, 5_000, 5_000, ((100, 200), (205, 206)))},
    failures=FailureStatus(
        *(410, 300, 2),
        errors=tuple((f"ValueError: no [such] document {n}", 70 - n) for n in range(7)),
        dead_letter_topic="orders.dead",
    ),
    parked=PARKED,
    resuming=Resuming(("-c", "500"), ("--set api_token=…",)),
    auto=samples.AUTO,
    rules=RuleStatus({"a": 1, "b": 4_800_000}, undecided={"n > 5": 136}, why={"n > 5": "no field"}),
    engine="spark",
    engine_counts={"slices": 12},
    open_transactions=(OpenTransaction("orders", 3, 700, 50), OpenTransaction("orders", 4, 9, 1)),
    left_alone={"its payload can't be written": 1, NOT_MATCHED: 2},
    latency=LATENCY,
    write_cap=a_cap(),
)
INTERRUPTED = a_summary(
    status="interrupted",
    exit_code=4,
    cause=Signalled("interrupted by SIGINT"),
    messages=counts(done=4_051, pending=49),
    sub_messages=counts(done=16_203, dead=70, pending=194),
    partitions={0: PartitionResult(1_000, 9_000, 5_000, 5_000, above=2_796)},
    plan="my orders.plan",
    eta_s=19.2,
    failures=FailureStatus(
        70,
        dead_letter_topic="orders.dead",
        doubled_letters=70,
        doubled_first=tuple(f"orders/0/{number}[0]" for number in range(20)),
    ),
)
RESUMED = (
    PartitionAction(0, 1_000, 9_000, None, finished=3_210),
    PartitionAction(1, 9_000, 9_000, 9_000),
)
DEAD = FailureSettings(3, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="orders.dead")
PARK = replace(
    DEAD,
    timeout_s=0.0,
    after_dead=AfterDead.PARK,
    max_failures=Limit(share=0.01),
    breaker=False,
    rate=0.5,
    skip=("payload.kind == 'set_email'", "sub_key == 'app-admin'", "payload.n > 5"),
)
REDRIVE = RedriveSettings(LetterFilter(reasons=("timeout",), sub_keys=("a", "b")), 5)
ON_SPARK = ShownEngine(
    "spark",
    "Spark on yarn",
    {"state": "s3://bucket/state", "spark conf": "drainer.tasks=40"},
)
REDRIVEN = replace(
    samples.action(2, resumes=True, failures=PARK, redrive=REDRIVE),
    makes_topic="orders.dead",
    batching=Batching(lambda earlier, later: later, most=200),
    concurrency=Concurrency.auto(),
    engine=ON_SPARK,
)
KEPT = changed(
    samples.plan(),
    failures=PARK,
    unhandled=Unhandled({"payload.n > 5": 2, "payload.gone": 3}, {"too old": 4}),
    parked=tuple(lane.key for lane in LANES),
    parked_lanes=PARKED,
    redrive=RedriveSettings(max_redrives=1),
)
NOW = datetime(2026, 3, 14, 17, 5, 20, tzinfo=UTC)
DEADLINE = DeadlineStatus(datetime(2026, 3, 15, 8, tzinfo=UTC), 53_680.0, 52_140.0)
WHY = "halted: handle failed for sub-message orders/0/7[1] ('doc-17'): ValueError: no such document"
ENDED = (
    Event("2026-03-14T16:20:00+00:00", EventKind.BEGUN, "ana@db1"),
    Event("2026-03-14T17:01:30+00:00", EventKind.ENDED, "ana@db1", details=(WHY,)),
)
DONE = (replace(ENDED[1], details=("done",)),)
DEAD_LETTERS = a_summary(
    exit_code=6, sub_messages=counts(done=9_723, dead=277), history=ENDED[:1] + DONE
)


def found(name: str, status: Status | None, left: OffsetPlan | None = None) -> FoundDrain:
    about = About(name, "orders", "reindexer", "d-1", "process", ENDED[0].at)
    return FoundDrain(Path(name), about, status, 0.2, 0 if left else 4_711, left)


FOUND = (
    found("orders.reindexer.plan.json", a_status(eta_s=1_540.0, deadline=DEADLINE)),
    found("orders.second.plan.json", a_status(stopping="Ctrl-C")),
    found("orders.third.plan.json", None, changed(samples.plan(), history=ENDED, share_done=0.51)),
    found("orders.fourth.plan.json", None, changed(samples.plan(), history=ENDED[:1])),
)
LONG = "customer-events-production-eu-west-1.customer-events-indexer-blue.plan.json"
SEVEN = (
    *FOUND,
    found(LONG, a_status(deadline=DEADLINE)),
    found(LONG.replace("blue", "green"), a_status(eta_s=1_540.0)),
    found("orders.fifth.plan.json", None),
)
NINE = (
    *(found(f"orders.group-{n}.plan.json", a_status(deadline=DEADLINE)) for n in range(3)),
    *(
        found(
            f"orders.group-{n}.plan.json", None, changed(samples.plan(), history=ENDED[: 1 + n % 2])
        )
        for n in range(3, 9)
    ),
)
RUNNING = a_status(
    12,
    auto=samples.AUTO,
    latency_recent=LATENCY,
    failures=FailureStatus(
        32, 30, 4, 9, 1, 1, errors=(("OSError: [b1] is away", 30), ("V", 2)), failed_sub_messages=21
    ),
    trouble="no broker [b1] answers",
    stopping="Ctrl-C",
)
SCREENS: dict[str, Callable[[], Page | Status | str]] = {
    "live": lambda: RUNNING,
    "lines": lambda: "\n".join(
        (start_line(RUNNING), *(status_line(each, NOW) for each in (RUNNING, a_status())))
    ),
    "redrive-preview": lambda: preview_page(REDRIVEN),
    "plan-parked": lambda: plan_page(KEPT),
    "run-preview": lambda: preview_page(samples.action(3, failures=DEAD, warnings=("careful",))),
    "run-done": lambda: summary_page(a_summary(20, history=ENDED[:1] + DONE, deadline=DEADLINE)),
    "run-halted": lambda: summary_page(HALTED),
    "run-interrupted": lambda: summary_page(INTERRUPTED),
    "resume-preview": lambda: preview_page(samples.action(resumes=True, partitions=RESUMED)),
    "plan-show": lambda: plan_page(changed(samples.plan(2), history=ENDED), PLAN, now=NOW),
    "plan-killed": lambda: plan_page(changed(samples.plan(), history=ENDED[:1]), PLAN, now=NOW),
    "running": lambda: a_status(3, eta_s=1_540.0, deadline=DEADLINE, latency_recent=LATENCY),
    "run-dead": lambda: summary_page(DEAD_LETTERS),
    "ps": lambda: running_page(FOUND, NOW),
    "ps-seven": lambda: running_page(SEVEN, NOW),
    "ps-nine": lambda: running_page(NINE, NOW),
    "dead-list": lambda: overview_page(overview(Sample("a"), Sample("b", partition=3)), NONE),
    "dead-show": lambda: letter_page(there_and_back(Sample("key", payload={"a": 1}))),
    "inspect": lambda: inspection_page(inspection(partition(0), partition(1, 5))),
    "inspect-trouble": lambda: inspection_page(in_trouble()),
    "inspect-full": lambda: inspection_page(inspection(full=True)),
    "inspect-empty": lambda: inspection_page(empty()),
    "inspect-keys": lambda: inspection_page(replace(inspection(), skew=None, handler=None)),
    "estimate": lambda: estimate_page(estimate(verdict=by(900, -100, 300))),
    "estimate-costs": lambda: estimate_page(measured_costs()),
    "estimate-first": lambda: estimate_page(of_classes()),
    "estimate-empty": lambda: estimate_page(estimate(0)),
    "certify": lambda: report_page(REPORT),
    "limits": lambda: limits_page(PATH, measured(groups=5)),
    "limits-ends": lambda: limits_page(PATH, of_each_end()),
    "limits-nothing": lambda: limits_page(PATH, nothing_known()),
    "limits-preview": previewed,
}


# On a wide screen, too, the screens that people see most.
WIDE = (
    "live",
    "running",
    "run-preview",
    "run-done",
    "run-halted",
    "estimate",
    "inspect",
    "ps",
    "ps-seven",
)
SIZES = [*((name, 80, 24) for name in SCREENS), *((name, 120, 40) for name in WIDE)]


@pytest.mark.parametrize(("name", "width", "height"), SIZES)
def test_a_screen_is_what_it_was(
    name: str, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # On a dumb one, all screens are 80 columns wide.
    screen = samples.Screen()
    terminal = Terminal(stdout=screen, stderr=screen, width=width)
    match SCREENS[name]():
        case Status() as status:
            terminal.console.print(drawn(frame(status, width, height, now=NOW), width), end="")
        case str(lines):
            screen.write(lines)
        case page:
            terminal.present(page)
    printed = samples.plain(screen).splitlines()
    seen = "\n".join(line.rstrip() for line in printed) + "\n"
    if not isinstance(SCREENS[name](), str):
        longest = max(seen.splitlines(), key=cell_len)
        assert cell_len(longest) <= width, "a terminal would break this line within a word"
    kept = FOLDER / f"{name}.txt" if width == 80 else FOLDER / f"{width}x{height}" / f"{name}.txt"
    if os.environ.get("DRAINER_WRITE_SCREENS"):
        kept.write_text(seen)
    assert seen == kept.read_text(), (
        "To write it anew: DRAINER_WRITE_SCREENS=1 pytest tests/view/test_screens.py"
    )
