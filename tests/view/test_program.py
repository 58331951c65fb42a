"""Results for programs: what ``print`` and a notebook show of them."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import drainer
from builders import a_status, a_summary
from drainer.model.arguments import in_python
from drainer.model.resuming import Resuming
from drainer.model.status import FailureStatus, Summary
from drainer.view.program import ProgramTerminal
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


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_no_text_from_elsewhere_forges_a_line(result: Any) -> None:
    text = str(hostile(result))
    assert FORGED in text
    ensure_one_line_each(text)


def test_a_summary_is_printed_in_a_few_lines_and_its_repr_has_all_fields() -> None:
    summary = a_summary()
    lines = str(summary).splitlines()
    assert lines[0].startswith("✓ Drained: 3,000,000 messages")
    assert len(lines) <= 14
    assert "Summary(last=Status(" in repr(summary)
    assert "\x1b" not in str(HALTED)


def test_ipython_and_notebooks_show_the_printed_form(capsys: pytest.CaptureFixture[str]) -> None:
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
    commands = re.compile(r"`[^`]*`|drainer (?:resume|redrive|plan|dead) .*|add .* as before")
    assert not re.findall(r"(?<!\w)--\w.*", commands.sub("", str(result)))


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
    assert f"add {', '.join(lacks.needs)} as before" in str(ended)
    assert in_python("--force of theirs, --tune grace=5s") == "--force of theirs, grace_s=5s"
