"""A case: something that once broke trust, tried again on real brokers, clients and processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill

TRY_S = 300.0  # If a command takes longer than this, it hangs.
WAIT_S = 60.0


class Broken(AssertionError):
    """Raised by a case if what it tries still breaks trust. The text says how."""


def ensure(fact: object, what: str) -> None:
    """Raise Broken with ``what`` unless it is a fact."""
    if not fact:
        raise Broken(what)


def wait_until(condition: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Check again and again until the condition is true. Raises Broken with ``what`` if that takes
    too long."""
    until_s = time.monotonic() + within_s
    while not condition():
        ensure(time.monotonic() < until_s, f"not within {within_s:.0f} s: {what}")
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code and the streams of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The object that ``-o json`` printed."""
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """Both streams as one line."""
        return " ".join((self.out + self.err).split())

    def way_out(self, name: str) -> list[str]:
        """Return the words of the command that it printed behind ``resume:`` or ``undo:``."""
        lines = (self.out + self.err).splitlines()
        line = next(line for line in lines if line.startswith(f"{name}: drainer "))
        return shlex.split(line)[2:]


class Process(Protocol):
    """A process that was started, as ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


# Starts the command, with its words, folder, environment and streams, and words before the
# program's.
Launch = Callable[
    [Sequence[str], Path, Mapping[str, str], tuple[int, int, int], tuple[str, ...]], Process
]


def launch_script(
    words: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    by: tuple[str, ...],
) -> Process:
    """Start the command as a person calls it, by the script beside this Python."""
    program = str(Path(sys.executable).with_name("drainer"))
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [*by, program, *words], cwd=folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A command that was started. Its streams go to files."""

    process: Process
    streams: Path

    @property
    def err(self) -> str:
        return self.streams.with_suffix(".err").read_text(errors="surrogateescape")

    def prints(self, pattern: str) -> str:
        """Wait for a text on stderr that fits, and return it. Raises Broken if the command ends
        before."""
        until = time.monotonic() + TRY_S
        while (found := re.search(pattern, self.err)) is None:
            ensure(self.process.poll() is None and time.monotonic() < until, self.err)
            time.sleep(0.05)
        return found[0]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true. Raises Broken if the command ends before."""
        wait_until(lambda: condition() or self.process.poll() is not None, what, TRY_S)
        ensure(condition(), f"it ended before {what}: {self.err[-600:]}")

    def ended(self, within_s: float = TRY_S) -> Ended:
        """Wait for the end of the command."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Broken(f"it hangs for more than {within_s:.0f} s") from None
        out = self.streams.with_suffix(".out").read_text(errors="surrogateescape")
        return Ended(code, out, self.err)

    def ends(self, code: int) -> Ended:
        """Wait for the end of the command, and ensure its exit code."""
        ended = self.ended()
        ensure(ended.code == code, f"exit {ended.code}: {ended.text[-600:]}")
        return ended

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TRY_S)


@dataclass(frozen=True, slots=True)
class Stage:
    """The surroundings of a case: a broker that all cases share, and an empty folder of its own."""

    broker: Broker
    folder: Path
    launch: Launch = launch_script
    started: list[Running] = field(default_factory=list)

    def close(self) -> None:
        """Kill what still runs."""
        for running in self.started:
            running.kill()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings.load(self.bootstrap)

    def cluster(self) -> Cluster:
        """Return a connection to the brokers, to be used in a ``with``."""
        return Cluster.connect(self.settings, 60)

    def topic(
        self,
        records: int | Iterable[tuple[bytes | None, bytes]] = 0,
        *,
        name: str | None = None,
        partitions: int = 1,
    ) -> str:
        """Make a topic with these keys and values in partition 0, or with so many values that have
        a key each."""
        name = name or self.name()
        create_topic(self.settings, name, partitions)
        if isinstance(records, int):
            records = [(b"%d" % number, b"{}") for number in range(records)]
        fill(self.settings, name, ((key, value, 0) for key, value in records))
        return name

    def file(self, name: str, text: str) -> str:
        """Write a file in the folder, and return its name."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def run_words(
        self, topic: str, handler: str = "count", *more: str, group: str | None = None
    ) -> list[str]:
        """Return the words of a drain of all of a topic. By default, its group has the topic's
        name."""
        what = ["-b", self.bootstrap, "--topic", topic, "--group", group or topic]
        return ["run", *what, "--from", "earliest", "--yes", "--handler", handler, *more]

    def resume_words(self, plan: str | Path, *more: str) -> list[str]:
        """Return the words of a resume that names the plan's own handler."""
        handler = json.loads((self.folder / plan).read_bytes())["handler"]
        return ["resume", str(plan), "--handler", handler, "--yes", *more]

    def drain(
        self,
        topic: str,
        handler: str = "count",
        *more: str,
        group: str | None = None,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run that drain to its end."""
        return self.drainer(*self.run_words(topic, handler, *more, group=group), code=code, env=env)

    def drainer(
        self,
        *words: str,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        within_s: float = TRY_S,
    ) -> Ended:
        """Run the installed command in the folder to its end. Ensure its exit code, if one is
        given."""
        with self.running(*words, env=env) as running:
            ended = running.ended(within_s)
        wrong = f"{' '.join(words[:2])}: exit {ended.code}, not {code}: {ended.text[-600:]}"
        ensure(code in (None, ended.code), wrong)
        return ended

    @contextmanager
    def running(
        self, *words: str, env: Mapping[str, str] | None = None, by: Sequence[str] = ()
    ) -> Iterator[Running]:
        """Provide the command while it runs. At the end of the block it is killed if it still
        runs."""
        running = self.start(*words, env=env, by=by)
        try:
            yield running
        finally:
            running.kill()

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, by: Sequence[str] = ()
    ) -> Running:
        """Start the command, with the variables ``env`` beside those of this process."""
        streams = self.folder.with_name(f"{self.folder.name}-{uuid.uuid4().hex}")
        with (
            Path(os.devnull).open("rb") as nothing,
            streams.with_suffix(".out").open("wb") as out,
            streams.with_suffix(".err").open("wb") as err,
        ):
            filenos = nothing.fileno(), out.fileno(), err.fileno()
            environment = {**os.environ, **(env or {})}
            process = self.launch(words, self.folder, environment, filenos, tuple(by))
        self.started.append(Running(process, streams))
        return self.started[-1]

    def name(self) -> str:
        """Return a name for a topic or a group that no other case uses."""
        return f"trust-{uuid.uuid4().hex[:10]}"


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    ``before`` is what the command did when the fault was found. ``attempt`` returns what it does
    now, in a few words, and raises Broken if trust is still broken. A ``quick`` case takes a few
    seconds.
    """

    title: str
    before: str
    attempt: Callable[[Stage], str]
    quick: bool = False

    @property
    def id(self) -> str:
        return self.attempt.__name__


CASES: list[Case] = []


def case(
    title: str, *, before: str, quick: bool = False
) -> Callable[[Callable[[Stage], str]], Callable[[Stage], str]]:
    """Add a function to the cases."""

    def register(attempt: Callable[[Stage], str]) -> Callable[[Stage], str]:
        CASES.append(Case(title, before, attempt, quick))
        return attempt

    return register
