"""A drain runs whatever becomes of its streams, and its exit code is how it ended."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command.conftest import distinct
from command.process import ENDS_WITHIN_S, PROGRAM, Command, begin

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
SURROGATES = """
from drainer import SubMessage

def split(message):
    yield SubMessage("key-\\ud800")

def handle(sub):
    raise ValueError("bad \\udfff \\u2713 caf\\u00e9 \\U0001f600")
"""


def closed(command: Command, *words: str) -> int:
    """The exit code of the command where it has no stream at all: Python starts otherwise then."""
    code = command.home / "code"
    script = '{ "$@" <&- >&- 2>&-; echo $? >"$0"; } 2>/dev/null'
    whole = ["bash", "-c", script, str(code), *PROGRAM, *words]
    subprocess.run(whole, cwd=command.folder, env=command.env, check=True, timeout=60)
    return int(code.read_text())


def full(command: Command, *words: str) -> int:
    """The exit code of the command where the disk is full that its output goes to."""
    with Path("/dev/full").open("wb") as out:
        return with_output(command, out.fileno(), words)


def gone(command: Command, *words: str) -> int:
    """The exit code of the command where the reader of its output is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return with_output(command, writer, words)
    finally:
        os.close(writer)


def with_output(command: Command, out: int, words: tuple[str, ...]) -> int:
    with Path(os.devnull).open("rb") as nothing:
        streams = (nothing.fileno(), out, out)
        return begin(words, command.folder, command.env, streams).wait(ENDS_WITHIN_S)


ways = pytest.mark.parametrize("way", [pytest.param(closed, marks=pytest.mark.long), full, gone])


@ways
def test_a_drain_is_done_whatever_becomes_of_its_output(
    command: Command, way: Callable[..., int]
) -> None:
    topic = command.topic(distinct(20))
    what = [*command.what(topic, "count"), "--from", "earliest", "--yes", "-o", "json"]

    assert way(command, "run", *what, "--report", "r.html") == 0
    assert command.committed(topic) == {0: 20}
    assert "Drained" in (command.folder / "r.html").read_text()


def test_output_that_was_lost_is_reported_on_the_other_stream() -> None:
    outcome = subprocess.run(
        ["bash", "-c", '"$@" >/dev/full', "sh", *PROGRAM, "ps", "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert outcome.stderr.splitlines()[-1] == (
        "warning: standard output could not be written: No space left on device"
    )


@pytest.mark.long
def test_half_characters_and_a_narrow_locale_cost_neither_account_nor_report(
    command: Command,
) -> None:
    file = command.home / "surrogates.py"
    file.write_text(SURROGATES, encoding="utf-8")
    topic = command.topic(["{}"])
    what = [*command.what(topic, str(file)), "--from", "earliest", "--yes", "-o", "json"]
    outcome = command("run", *what, "--report", "r.html", code=5, env=ASCII)
    assert "Halted" in Path(command.folder / "r.html").read_text(encoding="utf-8")
    assert "Halted" in outcome.err
    assert re.search(r"^error: .*bad \\udfff", outcome.err, re.M)
    answer = outcome.answer
    assert "bad \\udfff ✓ café 😀" in answer["error"]
    assert answer["messages"]["pending"] == 1


@pytest.mark.long
def test_the_print_handler_fails_when_its_output_is_lost(command: Command) -> None:
    """Nothing else is its effect, so nothing may count as done."""
    topic = command.topic(distinct(2_000))
    what = [*command.what(topic, "print"), "--from", "earliest", "--yes"]
    assert full(command, "run", *what) == 5


@pytest.mark.long
def test_a_handler_that_closes_a_stream_changes_nothing(command: Command) -> None:
    (command.folder / "closes.py").write_text(
        "import sys\n\nsys.stdout.close()\nsys.stderr.close()\n\ndef handle(sub): ...\n"
    )
    what = ["--topic", "t", "--group", "g", "--handler", "closes.py", "-b", "127.0.0.1:1", "--yes"]
    outcome = command("run", *what, "-o", "json", code=3)
    assert outcome.answer["exit_code"] == 3
    assert "nothing listens" in outcome.error
