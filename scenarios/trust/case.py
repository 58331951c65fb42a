"""A case: something that once broke trust, tried again on real brokers, clients and processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scenarios.brokers import Broker

TRY_S = 300.0  # for one command, or it hangs


class NotHeld(AssertionError):
    """Raised by a case when what it tries still breaks trust; the text says how."""


@dataclass(frozen=True, slots=True)
class Running:
    """A command that was started; what it says goes to a file."""

    process: subprocess.Popen[bytes]
    told: Path

    @property
    def stderr(self) -> str:
        return self.told.read_text(errors="surrogateescape")

    def says(self, pattern: str) -> str:
        """What it says that fits, once it does. Raises NotHeld when it ends or hangs instead."""
        until = time.monotonic() + TRY_S
        while (found := re.search(pattern, self.stderr)) is None:
            insist(self.process.poll() is None and time.monotonic() < until, self.stderr)
            time.sleep(0.05)
        return found[0]

    def ends(self) -> int:
        """Its exit code."""
        return self.process.wait(TRY_S)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a case is given: a broker that all share, and an empty folder of its own."""

    broker: Broker
    folder: Path

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def drainer(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TRY_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the installed command in the folder, to its end; stdin is empty."""
        return subprocess.run(
            [*self.program, *words],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout_s,
            check=False,
        )

    @contextmanager
    def running(
        self, *words: str, env: Mapping[str, str] | None = None, by: Sequence[str] = ()
    ) -> Iterator[Running]:
        """The command while it runs; it is killed at the end if it still does."""
        told = self.folder / f"stderr-{uuid.uuid4().hex}"
        with told.open("wb") as stderr:
            process = subprocess.Popen(
                [*by, *self.program, *words],
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        try:
            yield Running(process, told)
        finally:
            process.kill()
            process.wait(TRY_S)

    @property
    def program(self) -> Sequence[str]:
        """The command as a person calls it: the script beside this Python."""
        return (str(Path(sys.executable).with_name("drainer")),)

    def name(self) -> str:
        """A name for a topic or group that nobody else uses."""
        return f"trust-{uuid.uuid4().hex[:10]}"


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    ``number`` is that of the fault in the list that the cases come from, ``before`` what the
    command did when it was found. ``attempt`` returns what it does now, in a few words, and raises
    NotHeld when trust is still broken.
    """

    number: int
    title: str
    before: str
    attempt: Callable[[Stage], str]

    @property
    def id(self) -> str:
        return f"{self.number:02}-{self.attempt.__name__}"


CASES: list[Case] = []


def case(
    number: int, title: str, *, before: str
) -> Callable[[Callable[[Stage], str]], Callable[[Stage], str]]:
    """Puts a function among the cases."""

    def register(attempt: Callable[[Stage], str]) -> Callable[[Stage], str]:
        CASES.append(Case(number, title, before, attempt))
        return attempt

    return register


def insist(holds: object, what: str) -> None:
    """Raises NotHeld with ``what`` unless it holds."""
    if not holds:
        raise NotHeld(what)
