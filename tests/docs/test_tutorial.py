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
QUESTION = " [y/N] "
ENOUGH_DONE = 2000  # sub-messages, by which some messages are done as a whole

# What the tutorial itself makes, and an account without losses: these numbers are compared.
EXACT = {"0", "500", "3000", "30000"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ERASED = "\x1b[2K"  # what stood in the line before
VARYING = (
    (re.compile(r"\d[\d.]*(?:ms|s|m|h)\b(?: \d+[ms]\b)*"), "<time>"),
    (re.compile(r"\d\d \w{3} \d\d:\d\d"), "<date>"),
    (re.compile(r"[\d.]+%"), "<share>"),
)


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


def alike(lines: list[str]) -> list[str]:
    """Without what differs from run to run: widths, times, counts that no file of it decides."""
    found = []
    for line in lines:
        text = " ".join(line.split())
        for pattern, name in VARYING:
            text = pattern.sub(name, text)
        number = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
        found.append(number.sub(lambda n: n[0] if n[0].replace(",", "") in EXACT else "<n>", text))
    return found


def differs(printed: list[str], output: list[str]) -> str:
    """What is printed and was not put out, or nothing; a line of … stands for any lines."""
    wanted, given = alike(printed), alike(output)
    at, is_free = 0, False
    parts: list[list[str]] = [[]]
    for line in wanted:
        if line == ANYTHING:
            parts.append([])
        else:
            parts[-1].append(line)
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        places = range(at, len(given) - len(part) + 1) if is_free else [at]
        if is_last and (not is_free or part):
            places = [place for place in places if place == len(given) - len(part)]
        found = [place for place in places if given[place : place + len(part)] == part]
        if not found:
            return "\n".join(["the tutorial prints", *part, "and the tool", *output])
        at, is_free = found[0] + len(part), True
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
        for question in [line for line in step.prints if QUESTION in line]:
            words, answer = question.split(QUESTION)
            session.shows(words)
            session.types(f"{answer}\n")
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
        assert not (difference := differs(step.prints, lines)), f"$ {step.does}\n{difference}"


def test_the_tutorial_is_true(tmp_path: Path, bootstrap: str) -> None:
    with Reader(tmp_path, bootstrap) as reader:
        for step in steps(TUTORIAL):
            reader.does(step)

    done = {line.split()[0] for line in (tmp_path / "done.txt").read_text().splitlines()}
    assert len(done) == 30_000


@pytest.mark.parametrize(
    ("printed", "output", "is_same"),
    [
        (["a 7"], ["a  8 "], True),
        (["a 500"], ["a 501"], False),
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
