"""Text from elsewhere, in whatever field: it forges no line, and hides nothing.

Each record that a view shows is shown with hostile text in all of its texts, also in those that are
added to it later.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from builders import a_status, changed
from core.letters import Sample, as_record, there_and_back
from drainer.certify.cli import report_page
from drainer.certify.split import SplitReport
from drainer.engine.history import History
from drainer.errors import Halted
from drainer.insight.cli.estimate import estimate_page
from drainer.insight.cli.inspect import inspection_page
from drainer.letters.cli.dead import letter_page, overview_page
from drainer.letters.overview import overview_of
from drainer.letters.receipts import Receipt, RedriveProgress
from drainer.model.finding import Finding, Level
from drainer.model.terms import LetterFilter
from drainer.text.escape import is_printable
from drainer.view.live import LineView, LiveView, progress_view
from drainer.view.page import Page
from drainer.view.plan import plan_page
from drainer.view.preview import preview_page
from drainer.view.report.page import html
from drainer.view.summary import drain_page, summary_page
from drainer.view.terminal import Terminal, logging_as_json

from . import samples
from .estimates import estimate
from .test_inspect import inspection, partition
from .test_screens import HALTED, KEPT, REDRIVEN
from .test_screens import RUNNING as RUNS

FORGED = "✓ Redriven 5 letters"
MARKUP = "<script>document.title = 'pwned'</script>"
EVIL = f"x{MARKUP}\n{FORGED}\r\x1b[2J\x9b1m\u202e\u200b\u2066\ud800"
ANSI_OF_RICH = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
RUNNING = changed(RUNS, engine_status=samples.on_spark(3))
# What the program looks up by, and reads back: another text there is another case, or none.
CODES = {"status", "engine", "order", "bound", "state", "verdict", "kind", "claims"}


def hostile(value: Any, name: str = "") -> Any:  # noqa: PLR0911
    """The same with all texts made hostile, wherever they are in it."""
    if name in CODES and not dataclasses.is_dataclass(value):
        return value
    match value:
        case str() if type(value) is str:
            return value + EVIL
        case Path():
            return Path(str(value) + EVIL)
        case tuple() | list():
            return type(value)(hostile(each) for each in value)
        case dict():
            return {hostile(key): hostile(each) for key, each in value.items()}
        case Halted():
            return Halted(f"{value}{EVIL}", hint=f"{value.hint}{EVIL}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = object.__new__(type(value))
        for field in dataclasses.fields(value):
            found = hostile(getattr(value, field.name), field.name)
            object.__setattr__(made, field.name, found)
        return made
    return value


def overview() -> Any:
    records = [(as_record(Sample("key", error=ValueError("x")).letter()), False)]
    return overview_of("orders.dead", records, LetterFilter(), 20)


def history() -> History:
    made = History()
    for second in range(3):
        made.add(hostile(a_status(elapsed_s=float(second), trouble="away")))
    return made


LEFT = hostile(
    RedriveProgress("drainer.redrive.t", {}, Receipt("t", "i", "d", "h", "t.plan", 9, ended=False))
)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PAGES: dict[str, Callable[[], Page]] = {
    "summary": lambda: summary_page(hostile(HALTED)),
    "drain": lambda: drain_page(hostile(REDRIVEN), hostile(HALTED), history(), NOW),
    "preview": lambda: preview_page(hostile(REDRIVEN)),
    "plan": lambda: plan_page(hostile(KEPT), Path("p" + EVIL)),
    "letter": lambda: letter_page(hostile(there_and_back(Sample("key", error=ValueError("x"))))),
    "letters": lambda: overview_page(hostile(overview()), LEFT),
    "inspection": lambda: inspection_page(hostile(inspection(partition(0), partition(1)))),
    "estimate": lambda: estimate_page(hostile(estimate())),
    "certificate": lambda: report_page(
        hostile(SplitReport([Finding("split", Level.BAD, "it differs", "fix it")], 9, 9))
    ),
}


def show(terminal: Terminal, name: str) -> None:
    if name in PAGES:
        terminal.present(PAGES[name]())
        return
    made: LiveView | LineView
    made = LiveView(terminal) if name == "live view" else LineView(terminal)
    with made as view:
        view.update(hostile(RUNNING))


def ensure_one_line_each(text: str) -> None:
    for line in text.splitlines():
        assert not line.strip().startswith(FORGED), text
        assert is_printable(line.replace("\t", " ")), repr(line)


@pytest.mark.parametrize("name", [*PAGES, "live view", "lines"])
def test_no_text_from_elsewhere_forges_or_steers_on_a_terminal(name: str) -> None:
    screen = samples.Screen()
    show(Terminal(stdout=screen, stderr=screen, width=120, height=60), name)
    seen = ANSI_OF_RICH.sub("", screen.getvalue()).replace("\r", "")
    assert FORGED in seen  # or nothing was shown of it
    ensure_one_line_each(seen)


@pytest.mark.parametrize("name", [*PAGES, "live view", "lines"])
def test_no_text_from_elsewhere_makes_a_line_of_the_log(name: str) -> None:
    err = io.StringIO()
    with logging_as_json(debug=True, stderr=err) as terminal:
        if name in PAGES:
            show(terminal, name)
        else:
            with progress_view(terminal) as view:
                view.update(hostile(RUNNING))
    for line in err.getvalue().splitlines():
        assert is_printable(line)
        assert not json.loads(line)["message"].strip().startswith(FORGED)


@pytest.mark.parametrize("name", PAGES)
def test_no_text_from_elsewhere_steers_a_page(name: str) -> None:
    text = html(PAGES[name](), NOW)
    assert FORGED in text
    for line in text.splitlines():
        assert is_printable(line.replace("\t", " ")), repr(line[:200])
    assert not re.search(rf"^\s*{FORGED}", text, re.M)


def test_a_traceback_forges_no_line_either() -> None:
    err = io.StringIO()
    with suppress(ValueError):
        raise ValueError(EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        Terminal(debug=True, stderr=err).fail(error)
    ensure_one_line_each(err.getvalue())
