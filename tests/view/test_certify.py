from __future__ import annotations

from drainer.certify.view import certificate_page, show_sample
from drainer.kafka.sample import Sample
from drainer.testing import Certificate, Finding, Level

from . import facts, samples

GOOD = Finding("split", Level.OK, "split accepts every message")
WARNED = Finding("sub-keys", Level.WARN, "sub-key 1.5 is of type float", "use str")
UNCHECKED = Finding("commutes", Level.UNCHECKED, "not checked")
BROKEN = Finding("deterministic", Level.BAD, "split gives [a] and \x1b[2J", "no clock")


def shown(*findings: Finding, quiet: bool = False) -> str:
    return facts.shown(certificate_page(Certificate(list(findings), 1_000, 50_000, 0)), quiet=quiet)


def test_what_is_broken_is_shown_even_when_quiet_and_can_not_steer_the_terminal() -> None:
    lines = shown(GOOD, BROKEN, quiet=True).splitlines()

    assert lines == [
        "✗ 1 of 2 checks failed",
        "hint: deterministic: no clock",
        "  ✗ split gives [a] and \\x1b[2J",
    ]


def test_the_sample_is_shown_before_anything_is_tried() -> None:
    terminal, _, err = samples.terminal()
    show_sample(terminal, "h.py:H", Sample("orders", "id", {0: (1, 50), 7: (0, 50)}, (), 0.0, 0), 4)

    lines = err.getvalue().splitlines()
    assert lines[0] == "Certify h.py:H on 0 messages of orders"
    assert "99 offsets in 2 partitions" in lines[1]
    assert "--seed 4" in lines[1]
