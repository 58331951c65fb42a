from __future__ import annotations

import math

import pytest

from drainer.engine.status import FailureStatus
from drainer.view.lines import LineView, start_line, status_line
from drainer.view.live import LiveView, progress_view
from drainer.view.terminal import Terminal

from . import samples


def test_a_line_each_five_seconds_and_one_at_the_end() -> None:
    terminal, out, err = samples.terminal(width=40)
    with LineView(terminal) as view:
        for half_seconds in range(25):
            view.update(samples.status(elapsed_s=half_seconds / 2))
    starts = [line.split("  ")[0] for line in err.getvalue().splitlines()]
    assert starts[0].startswith("draining orders for group reindexer: ~3,000,000 messages")
    assert starts[1:] == ["5.0s", "10s", "12s"]
    assert out.getvalue() == ""


def test_the_line() -> None:
    assert status_line(samples.status()) == (
        "3m 20s  41.0%  1,230,000 of ~3,000,000 messages  89,123 sub-messages/s (avg 88,000)"
        "  eta 25m 40s  lanes 996 running 14000 waiting  buffer 191 MiB  dead 3"
        "  committed 0:1171000"
    )


def test_lines_tell_a_concurrency_that_is_found_and_why_it_changed() -> None:
    status = samples.status(auto=samples.AUTO)
    assert "  concurrency 310 (auto, trying whether more helps)  dead 3" in status_line(status)
    assert "concurrency auto, 2,000 at most, plan" in start_line(status)


def test_the_line_tells_what_failed_and_that_there_is_trouble_in_few_words() -> None:
    failures = FailureStatus(failures=1_234, retries=1_000, parked_lanes=2)
    line = status_line(samples.status(failures=failures, trouble="a long story"))
    assert "  failures 1,234  retries 1,000  parked lanes 2  dead 3  in trouble  " in line


def test_trouble_and_stopping_are_told_at_once_and_only_once() -> None:
    terminal, _, err = samples.terminal()
    with LineView(terminal) as view:
        view.update(samples.status(elapsed_s=0))
        for tenth in range(10):
            view.update(samples.status(elapsed_s=tenth / 10, trouble="no broker [b1] answers"))
        view.update(samples.status(elapsed_s=2))
        view.update(samples.status(elapsed_s=3, stopping="Ctrl-C"))
    lines = err.getvalue().splitlines()
    assert lines[1:4] == [
        "warning: trouble: no broker [b1] answers",
        "trouble over",
        "warning: stopping: Ctrl-C",
    ]
    assert len(lines) == 5


def test_quiet_tells_of_trouble_only() -> None:
    terminal, _, err = samples.terminal(quiet=True)
    with LineView(terminal) as view:
        view.update(samples.status(elapsed_s=0))
        view.update(samples.status(elapsed_s=50, trouble="t"))
    assert err.getvalue() == "warning: trouble: t\n"


def test_the_end_is_not_said_twice() -> None:
    terminal, _, err = samples.terminal()
    with LineView(terminal) as view:
        view.update(samples.status(elapsed_s=0))
        view.update(samples.status(elapsed_s=5))
    assert len(err.getvalue().splitlines()) == 2


def test_a_drain_that_never_began_says_nothing() -> None:
    terminal, _, err = samples.terminal()
    with LineView(terminal):
        pass
    assert err.getvalue() == ""


@pytest.mark.parametrize("partitions", [0, 200])
def test_unhappy_values(partitions: int) -> None:
    status = samples.status(
        partitions, eta_s=None, rate_now=0.0, rate_average=math.inf, running=0, elapsed_s=0.0
    )
    line = status_line(status)
    assert "eta unknown" in line
    assert "\n" not in line
    assert line.endswith("+192 more" if partitions else "committed none")


def test_the_view_suits_the_terminal() -> None:
    piped, _, _ = samples.terminal()
    assert isinstance(progress_view(piped), LineView)
    assert isinstance(progress_view(Terminal(stderr=samples.Screen())), LiveView)
    assert isinstance(progress_view(Terminal(quiet=True, stderr=samples.Screen())), LineView)
