from __future__ import annotations

from dataclasses import replace

from builders import a_status, changed
from drainer.view.live import LineView, LiveView, progress_view, status_line
from drainer.view.terminal import Terminal

from . import samples


def test_a_line_each_five_seconds_and_one_at_the_end_but_none_twice() -> None:
    terminal, out, err = samples.terminal(width=40)
    with LineView(terminal) as view:
        for half_seconds in range(25):
            view.update(a_status(elapsed_s=half_seconds / 2))
    starts = [line.split("  ")[0] for line in err.getvalue().splitlines()]
    assert starts[0].startswith("draining orders for group reindexer: ~3,000,000 messages")
    assert starts[1:] == ["5.0s", "10s", "12s"]
    assert out.getvalue() == ""

    terminal, _, err = samples.terminal()
    with LineView(terminal) as view:
        view.update(a_status(elapsed_s=0))
        view.update(a_status(elapsed_s=5))
    with LineView(terminal):  # a drain that never began
        pass
    assert len(err.getvalue().splitlines()) == 2


def test_the_line_of_a_drain_that_is_done_has_no_estimate_and_no_limit() -> None:
    status = a_status(eta_s=None)
    done = tuple(replace(each, watermark=each.end) for each in status.progress.partitions)
    line = status_line(changed(status, partitions=done))
    assert "eta" not in line
    assert "limited by" not in line


def test_trouble_and_stopping_are_reported_at_once_and_only_once() -> None:
    terminal, _, err = samples.terminal()
    with LineView(terminal) as view:
        view.update(a_status(elapsed_s=0))
        for tenth in range(10):
            status = a_status(elapsed_s=tenth / 10, trouble="no broker [b1] answers")
            view.update(changed(status, silent_s=tenth / 10))
        view.update(a_status(elapsed_s=2))
        view.update(a_status(elapsed_s=3, stopping="Ctrl-C"))
        view.update(a_status(elapsed_s=4, stopping="Ctrl-C", blocked_by="reindex.py:7"))
    lines = err.getvalue().splitlines()
    assert lines[1:4] == [
        "warning: no broker [b1] answers since 0s",
        "trouble over",
        "warning: stopping: Ctrl-C",
    ]
    assert lines[4].startswith("warning: the handler blocks the event loop at reindex.py:7")
    assert len(lines) == 6


def test_the_view_suits_the_terminal() -> None:
    piped, _, _ = samples.terminal()
    assert isinstance(progress_view(piped), LineView)
    assert isinstance(progress_view(Terminal(stderr=samples.Screen())), LiveView)
    assert isinstance(progress_view(Terminal(quiet=True, stderr=samples.Screen())), LineView)
