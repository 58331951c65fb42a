"""docs/tutorial.md is walked as it is printed: its files, its commands, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from command.terminal import TerminalSession
from kafka.topic import eventually

TUTORIAL = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
ANYTHING = "…"
LEFT_OUT = ("python3 -m venv", ". .venv/", "pip install", "drainer sandbox")
BROKER = "export DRAINER_BOOTSTRAP_SERVER=$(drainer sandbox up)"
ASKS = "[y/N] "
ENOUGH_DONE = 2000  # sub-messages, by which some messages are done as a whole

# What the tutorial itself makes, and an account without losses: these numbers are compared.
EXACT = {"0", "500", "3000", "30000"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ERASED = "\x1b[2K"  # what stood in the line before
DATE = r"\d\d \w{3} \d\d:\d\d"
TIME = r"\d[\d.]*(?:ms|s|m|h)\b(?: \d+m?s\b)?"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
# Nor is another number printed where the tool gives one of these; a kill may leave 3,000 offsets.
OTHER_NUMBER = rf"(?!500\b|30?,000\b(?! offsets)){NUMBER}"
VARIES = re.compile(f"({DATE})|({TIME})|({NUMBER})")


class Step(NamedTuple):
    """A file to write, or a command to run, and what the tutorial prints below it."""

    does: str
    prints: list[str]
    file: str = ""


def steps(text: str) -> Iterator[Step]:
    for language, block in re.findall(r"^```(\w+)\n(.+?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            yield Step(block, [], block.splitlines()[0].removeprefix("# "))
            continue
        assert language == "console"
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            yield Step(command, printed)


def expected(printed: str) -> re.Pattern[str]:
    """What a line may be: widths, times, and numbers that the tutorial does not decide vary."""

    def may_be(found: re.Match[str]) -> str:
        date, time, number = found.groups()
        if number and number.replace(",", "") in EXACT:
            return re.escape(number)
        return DATE if date else f"(?:{TIME}|unknown)" if time else OTHER_NUMBER

    text, pattern, at = " ".join(printed.split()), "", 0
    for found in VARIES.finditer(text):
        pattern += re.escape(text[at : found.start()]) + may_be(found)
        at = found.end()
    return re.compile(pattern + re.escape(text[at:]))


def differs(printed: list[str], output: list[str]) -> str:
    """What is printed and was not put out, or nothing; a line of … stands for any lines."""
    given = [" ".join(line.split()) for line in output]
    parts: list[list[str]] = [[]]
    for line in printed:
        if line == ANYTHING:
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        wanted = [expected(line) for line in part]
        last = len(given) - len(part)
        first = last if part and number and number == len(parts) - 1 else at
        places = range(first, (last if number else 0) + 1)
        found = [
            place
            for place in places
            if place >= at
            and all(w.fullmatch(g) for w, g in zip(wanted, given[place:], strict=False))
        ]
        is_whole = len(parts) > 1 or len(part) == len(given)
        if not found or last < 0 or not is_whole:
            return "\n".join(["the tutorial prints", *part, "and the tool", *output])
        at = found[0] + len(part)
    return ""


class Reader:
    """Does as the tutorial says, in a folder and on terminals of its own; a context manager."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._env = {n: v for n, v in os.environ.items() if not n.startswith("DRAINER")}
        programs = Path(sys.executable).parent
        self._env["PATH"] = f"{programs}{os.pathsep}{self._env['PATH']}"
        self._first: tuple[Step, TerminalSession] | None = None  # terminal, while it is busy

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._first:
            self._first[1].__exit__()

    def does(self, step: Step) -> None:
        if step.file:
            (self.folder / step.file).write_text(step.does)
        elif step.does == BROKER:
            self._env["DRAINER_BOOTSTRAP_SERVER"] = self._bootstrap
        elif step.does.startswith(LEFT_OUT):
            assert not step.prints
        elif step.does.startswith("kill -9 "):
            self._kills_the_first()
        elif step.does.startswith("drainer "):
            self._runs(step)
        else:
            ended = subprocess.run(
                ["bash", "-c", step.does],
                cwd=self.folder,
                env=self._env,
                capture_output=True,
                text=True,
                check=True,
            )
            self._compares(step, ended.stdout)

    def _runs(self, step: Step) -> None:
        session = TerminalSession(shlex.split(step.does)[1:], self.folder, self._env)
        is_killed = step.prints[-1:] == ["Killed"]
        if is_killed:
            self._first = step, session
        seen = ""
        for question in [line for line in step.prints if ASKS in line]:
            session.shows(ASKS)
            seen, session.seen = seen + session.seen, ""
            session.types(question.split(ASKS)[1] + "\n")
        session.seen = seen + session.seen
        if is_killed:
            done = self.folder / "done.txt"
            eventually(
                lambda: done.exists() and len(done.read_bytes().splitlines()) > ENOUGH_DONE,
                "it has done some",
            )
            return
        with session:
            self._compares(step, session.ends(0))

    def _kills_the_first(self) -> None:
        assert self._first
        step, session = self._first
        self._first = None
        with session:
            session.signal(signal.SIGKILL)
            session.ended()
            assert session.code == -signal.SIGKILL
            self._compares(step, session.seen + "\nKilled\n")  # as a shell says it

    def _compares(self, step: Step, output: str) -> None:
        seen = [ESCAPES.sub("", line.split(ERASED)[-1]) for line in output.split("\n")]
        lines = "\n".join(seen).strip().splitlines()
        if step.does == "drainer ps":  # root sees others' drains, too, whose plans lie elsewhere
            lines = [line for line in lines if not line.startswith("/")]
        assert not (difference := differs(step.prints, lines)), f"$ {step.does}\n{difference}"


def test_the_tutorial_is_true(tmp_path: Path, bootstrap: str) -> None:
    walked = list(steps(TUTORIAL))
    with Reader(tmp_path, bootstrap) as reader:
        for step in walked:
            reader.does(step)

    done = {line.split()[0] for line in (tmp_path / "done.txt").read_text().splitlines()}
    assert len(done) == 30_000
    assert Step("sort -u done.txt | wc -l", ["30000"]) in walked


@pytest.mark.parametrize(
    ("printed", "output", "is_same"),
    [
        (["a 7"], ["a  8 "], True),
        (["a 500"], ["a 501"], False),
        (["a 7"], ["a 3,001"], True),
        (["a 2,999"], ["a 3,000"], False),
        (["a 7"], ["a b"], False),
        (["1m 43s (5.5%)"], ["unknown (66%)"], True),
        (["took 7.0s, 3%"], ["took 1m 30s, 4.5%"], True),
        (["a", ANYTHING, "c", "d"], ["a", "b", "c", "x", "c", "d"], True),
        (["a", ANYTHING], ["a", "b"], True),
        ([ANYTHING, "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["b"], ["a", "b"], False),
        (["a", ANYTHING, "c"], ["a", "c", "b"], False),
        (["a", ANYTHING, "c", ANYTHING, "b"], ["a", "b", "c"], False),
        ([], ["a"], False),
    ],
)
def test_what_is_printed_is_found_in_order(
    printed: list[str], output: list[str], is_same: bool
) -> None:
    assert (differs(printed, output) == "") == is_same
