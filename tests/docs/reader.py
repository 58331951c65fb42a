"""A reader who types what a page prints, in a folder and on terminals of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from command.process import ENDS_WITHIN_S
from command.terminal import TerminalSession
from docs.pages import Step
from docs.transcript import differs, lines_of
from drainer.errors import EXIT_CLASS_WAITS, EXIT_DEAD_LETTERS, EXIT_INTERRUPTED
from kafka.topic import eventually

T = TypeVar("T")
KILLED = -signal.SIGKILL
QUESTION = "[y/N] "
DONE = "done.txt"  # where handlers of the pages note each sub-message
LINES_SHOWN = 30  # of a command that does not end as the page claims
ENOUGH_DONE = 2000  # sub-messages, by which some messages are done as a whole
BROKERS = re.compile(r"\b(?:broker(?:-1)?|localhost|kafka-1):909[23]\b")
SANDBOX = "$(drainer sandbox up)"

# What a page prints where a command does not end with 0, and with what it ends.
ENDS = {
    "■ Stopped on request": EXIT_INTERRUPTED,
    "! Drained, with": EXIT_DEAD_LETTERS,
    "wait for the rest, queued behind it": EXIT_CLASS_WAITS,
    "Killed": KILLED,
}

# What no test types, and why. The drainer commands among it are parsed all the same.
LEFT_OUT = {
    r"(^|/)pip install|^python3 -m venv|^\. \.venv": "installs from a registry, as .ci/run does",
    r"^\.ci/(run|weekly)|bin/pytest": "runs these tests",
    r"^drainer sandbox": "the tests' own broker is there; tests/sandbox starts and removes one",
    r"^drainer limits -b": "measures for minutes; scenarios.broker_limits does",
    r"venv-pack": "packs an environment of a gigabyte",
    r"dsn=postgresql": "needs PostgreSQL and a service; tests/command/test_postgresql.py has them",
    r"^(kubectl|podman) ": "needs Kubernetes; tests/command/test_container.py has its conditions",
    r"spark://spark-1:7077": "needs a cluster of Spark's; tests/command/test_submit.py has one",
}
TWO_USERS = "needs two users; scenarios/trust/case_folders.py has them"


def left_out(step: Step) -> str:
    """Reason why no test types it; empty if one does."""
    if step.user:
        return TWO_USERS
    return next((why for what, why in LEFT_OUT.items() if re.search(what, step.does)), "")


class Reader:
    """Types one command after the other; a context manager, which ends what still runs."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.env = {n: v for n, v in os.environ.items() if not n.startswith("DRAINER")}
        programs = Path(sys.executable).parent
        self.env |= {"PATH": f"{programs}{os.pathsep}{self.env['PATH']}", "HOME": str(folder)}
        self._opened = ExitStack()
        # What this machine remembers of the drains of other tests is on no page.
        self.env["XDG_RUNTIME_DIR"] = self._opened.enter_context(TemporaryDirectory(prefix="run-"))
        self.places: dict[str, str] = {}  # where a URL of the page is here
        self.before: dict[str, Callable[[], None]] = {}  # done before a command that begins so
        self._busy: tuple[Step, TerminalSession] | None = None  # a terminal, until it is killed

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def does(self, step: Step, *, compares: bool = False) -> None:
        """Write the file, or type the command; ensure its end, and its output on request."""
        for begins, act in self.before.items():
            if step.does.startswith(begins):
                act()
        typed = BROKERS.sub(self.bootstrap, step.does.replace(SANDBOX, self.bootstrap))
        for place, here in self.places.items():
            typed = typed.replace(place, here)
        if step.file:
            (self.folder / step.file).write_text(step.does)
        elif left_out(step):
            assert not compares or not step.prints
        elif typed.startswith("kill -9 "):
            self._kills()
        else:
            typed_step = step._replace(does=typed)
            seen = self._in_shell(typed_step) if step.needs_shell else self._runs(typed_step)
            if compares and seen is not None:
                self._compares(step, seen)

    def opens(self, opened: AbstractContextManager[T]) -> T:
        """Open something that is there until the last command has ended."""
        return self._opened.enter_context(opened)

    def starts(self, *words: str) -> TerminalSession:
        """Begin a drain in another terminal, and return when it has done some."""
        return self._begun(list(words), [])

    def stops(self, *words: str) -> None:
        """Begin a drain, and stop it as Ctrl-C does."""
        session = self.starts(*words)
        session.signal(signal.SIGINT)
        session.ends(EXIT_INTERRUPTED)

    def ends(self, code: int, *words: str) -> None:
        """Run a drain to its end."""
        self._session(list(words)).ends(code)

    def _runs(self, step: Step) -> str | None:
        code = next((code for line, code in ENDS.items() if line in "\n".join(step.prints)), 0)
        given = [line.split(QUESTION)[1] for line in step.prints if QUESTION in line]
        if code in (EXIT_INTERRUPTED, KILLED):
            session = self._begun(step.words[1:], given)
            if code == KILLED:
                self._busy = step, session
                return None
            session.signal(signal.SIGINT)
        else:
            session = self._session(step.words[1:])
            session.answers(QUESTION, given)
        session.ended()
        _ended(step, session.code, code, session.seen)
        return session.seen

    def _begun(self, words: list[str], given: list[str]) -> TerminalSession:
        """A drain that has done some."""
        session, done = self._session(words), self.folder / DONE
        before = len(_lines(done))
        for answer in [] if "--yes" in words else given or ["y"]:
            session.shows(QUESTION)
            session.types(answer + "\n")
        session.until(lambda: len(_lines(done)) > before + ENOUGH_DONE, "it has done some")
        return session

    def _session(self, words: list[str]) -> TerminalSession:
        words = [re.sub("^~/", f"{self.folder}/", word) for word in words]
        return self._opened.enter_context(TerminalSession(words, self.folder, self.env))

    def _in_shell(self, step: Step) -> str:
        """Output of bash; what it exports is kept, and what it leaves in the background."""
        output, environment = self.folder / ".output", self.folder / ".environment"
        script = f"{step.does}\ncode=$?; env -0 > {environment}; exit $code"
        with output.open("wb") as put_out:
            ended = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=put_out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._opened.callback(_end_group, ended.pid)
        _ended(step, ended.wait(ENDS_WITHIN_S), 0, output.read_text())
        if listens := re.search(r"--port (\d+).*&$", step.does):  # in the background
            eventually(lambda: is_open(int(listens[1])), f"port {listens[1]} is open")
        pairs = environment.read_text().split("\0")[:-1]
        self.env = dict(pair.split("=", 1) for pair in pairs) | {"HOME": str(self.folder)}
        return output.read_text()

    def _kills(self) -> None:
        assert self._busy
        step, session = self._busy
        session.signal(signal.SIGKILL)
        session.ended()
        assert session.code == KILLED
        self._compares(step, session.seen + "\nKilled\n")  # as a shell prints it

    def _compares(self, step: Step, seen: str) -> None:
        lines = lines_of(seen)
        if step.does == "drainer ps":  # Other drains of this user's may run; they have whole paths.
            lines = [line for line in lines if not line.startswith("/")]
        assert not (difference := differs(step.prints, lines)), f"$ {step.does}\n{difference}"


def _ended(step: Step, code: int | None, claimed: int, seen: str) -> None:
    last = "\n".join(lines_of(seen)[-LINES_SHOWN:])
    assert code == claimed, f"$ {step.does}\nexit {code}, not {claimed}\n{last}"


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
