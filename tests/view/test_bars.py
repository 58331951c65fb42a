from __future__ import annotations

from drainer.view.page import Bars

from . import samples

ROWS = (
    ("partition order", 14 * 86400.0, "14 days"),
    ("key order", 14 * 86400.0, "14 days"),
    ("sub-key order", 9.0, "9 s"),
)


def bars(*, log: bool) -> list[str]:
    terminal, out, err = samples.terminal(width=80)
    terminal.items(Bars("one key [50 operations]", ROWS, log=log))
    assert out.getvalue() == ""
    return err.getvalue().splitlines()


def test_bars_are_as_long_as_their_values() -> None:
    lines = bars(log=False)
    assert lines[0] == "one key [50 operations]"
    assert lines[1].count("█") == lines[2].count("█") > 40
    assert lines[3].split() == ["sub-key", "order", "▏", "9", "s"]
    assert max(map(len, lines)) <= 80


def test_a_log_scale_says_so_and_shows_the_small_one() -> None:
    lines = bars(log=True)
    assert lines[0].endswith("(log scale)")
    assert 5 < lines[3].count("█") < lines[1].count("█") / 3


def test_nothing_to_compare_is_no_crash() -> None:
    terminal, _, err = samples.terminal()
    terminal.items(Bars("none", ()), Bars("zero", (("a", 0.0, "0 s"),), log=True))
    assert "0 s" in err.getvalue()
