from __future__ import annotations

from drainer.certify.cli import report_page, sample_lines
from drainer.certify.split import SplitReport
from drainer.kafka.sample import Sample
from drainer.model.finding import Finding, Level

from . import facts, samples

WARNED = Finding("split", Level.WARN, "split rejects 3 of 1,000 messages", "Fix split.")
BROKEN = Finding("deterministic", Level.BAD, "split gives [a] and \x1b[2J", "no clock")
REPORT = SplitReport([WARNED, BROKEN], 1_000, 50_000)


def test_what_is_broken_is_shown_even_when_quiet_and_can_not_steer_the_terminal() -> None:
    lines = facts.shown(report_page(REPORT), quiet=True).splitlines()

    assert lines[:2] == ["✗ 1 of 2 checks failed, 1 warning", "hint: no clock"]
    assert lines[-1] == "  ✗ split gives [a] and \\x1b[2J"


def test_the_sample_is_shown_before_anything_is_tried() -> None:
    terminal, _, err = samples.terminal()
    sample = Sample("orders", {0: (1, 50), 7: (0, 50)}, (), 0)
    terminal.items(*sample_lines("h.py:H", sample, 4))

    lines = err.getvalue().splitlines()
    assert lines[0] == "Certify h.py:H on 0 messages of orders"
    assert "99 offsets in 2 partitions" in lines[1]
    assert "--seed 4" in lines[1]
