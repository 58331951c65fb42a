"""Results for programs: what ``print`` and a notebook show of them."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

import drainer
from builders import a_status, a_summary
from drainer.model.arguments import in_python
from drainer.model.resuming import Resuming
from drainer.model.status import FailureStatus, Summary
from drainer.view.notebook import ProgramTerminal
from drainer.view.summary import summary_page

from . import samples
from .estimates import by, estimate, measured_costs, of_classes
from .test_hostile import FORGED, ensure_one_line_each, hostile
from .test_inspect import in_trouble, inspection, partition
from .test_screens import DEAD, DEAD_LETTERS, HALTED, INTERRUPTED, REDRIVEN, RUNNING

RESULTS: dict[str, Any] = {
    "summary": HALTED,
    "status": RUNNING,
    "preview": REDRIVEN,
    "inspection": inspection(partition(0), partition(1)),
    "estimate": estimate(),
}


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {f"{name}={value}" for name, value in attrs if tag != "meter"}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_no_text_from_elsewhere_is_markup_in_a_notebook_or_forges_a_line(result: Any) -> None:
    shown = hostile(result)
    page = Tags(shown._repr_html_())
    assert page.tags <= {"div", "p", "table", "thead", "tr", "th", "td", "meter"}
    assert page.attributes <= {
        "class=tex2jax_ignore mathjax_ignore",
        "style=text-align: left",
        "style=text-align: right",
    }
    for text in (page.text, str(shown)):
        assert FORGED in text
        ensure_one_line_each(text)


def test_a_summary_is_printed_in_a_few_lines_and_its_repr_has_all_fields() -> None:
    summary = a_summary()
    lines = str(summary).splitlines()
    assert lines[0].startswith("✓ Drained: 3,000,000 messages")
    assert len(lines) <= 14
    assert "Summary(last=Status(" in repr(summary)
    assert "\x1b" not in str(HALTED)


def test_a_summary_in_a_notebook_is_a_table() -> None:
    rows = Tags(a_summary(20)._repr_html_()).rows
    assert ["plan", "orders.reindexer.plan"] in rows
    assert ["  messages", "3,000,000", "3,000,000", *"0000", "✓ adds up"] in rows
    assert ["10", "1000", "9010", "9010", "9010", "✓"] in rows
    assert "and 8 more" in Tags(a_summary(20)._repr_html_()).text


def test_bars_are_drawn_in_a_notebook() -> None:
    assert '<meter value="1.000">' in RESULTS["inspection"]._repr_html_()


def test_a_terminal_of_ipython_shows_the_printed_form(capsys: pytest.CaptureFixture[str]) -> None:
    a_summary()._repr_pretty_(SimpleNamespace(text=print), cycle=False)
    assert capsys.readouterr().out == f"{a_summary()}\n"
    assert "_repr_pretty_" in vars(Summary)  # IPython prefers a __repr__ that it finds before it.


def test_a_status_is_printed_as_a_line_of_the_log() -> None:
    (line,) = str(RUNNING).splitlines()
    assert line.startswith("3m 20s  41.0%  eta ")


def test_completion_finds_all_public_names() -> None:
    assert set(drainer.__all__) <= set(dir(drainer))
    assert drainer.Summary is Summary


AT_RATE = a_status(3, failures=FailureStatus(rate=5), rate_now=5)
NAMED: dict[str, Any] = {
    **RESULTS,
    "dead": DEAD_LETTERS,
    "interrupted": INTERRUPTED,
    "at the rate": AT_RATE,
    "warned": samples.action(3, failures=DEAD, warnings=("--from skips offsets", "add --skip X")),
    "late": estimate(verdict=by(900, -100, 300)),
    "costs": measured_costs(),
    "classes": of_classes(),
    "trouble": in_trouble(),
    "full": inspection(full=True),
    "no keys": replace(inspection(), skew=None, handler=None),
}


@pytest.mark.parametrize("result", NAMED.values(), ids=NAMED)
def test_what_a_program_prints_names_its_arguments_and_no_options(result: Any) -> None:
    for shown in (str(result), Tags(result._repr_html_()).text):
        commands = re.compile(r"`[^`]*`|drainer (?:resume|redrive|plan|dead) .*|add .* as before")
        assert not re.findall(r"(?<!\w)--\w.*", commands.sub("", shown))


def test_a_terminal_of_a_program_names_arguments_and_leaves_commands_as_they_are() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal = ProgramTerminal(stdin=io.StringIO(), stdout=out, stderr=err)
    terminal.warn("to keep that, add --concurrency 5")
    terminal.present(summary_page(INTERRUPTED))
    assert err.getvalue().startswith("warning: to keep that, add concurrency 5\n")
    assert "drainer redrive --dead-letter-topic" in out.getvalue()


def test_a_program_s_warnings_and_limits_are_in_its_own_terms() -> None:
    shown = str(NAMED["warned"])
    assert "from_ skips offsets" in shown
    assert "add failures.skip X" in shown
    assert "failures.rate" in str(AT_RATE)
    lacks = Resuming(("--concurrency", "20"), ("--set api_token=…", "--tune client-id=…"))
    assert in_python(lacks.way("p.json")) == lacks.way("p.json"), "the command takes options"
    ended = replace(INTERRUPTED, resuming=lacks)
    for shown in (str(ended), Tags(ended._repr_html_()).text):
        assert f"add {', '.join(lacks.needs)} as before" in shown
    assert in_python("--force of theirs, --tune grace=5s") == "--force of theirs, grace_s=5s"
