"""The stage of the chapters: brokers of their own, a folder, chance, and a chapter's report."""

from __future__ import annotations

import os
import random
import resource
import select
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from drainer.errors import EXIT_DONE
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker, Brokers
from scenarios.chaos.drain import ONE_PARTITION, PATIENCE_S, Backlog, Pace, Process, Spread
from scenarios.chaos.trace import Judged, Run, judge

WIDE = Pace(concurrency=200, latency_ms=5)
# At 2,500 per second there is time for things to happen.
SLOW = Pace(concurrency=50, latency_ms=20)
KILLED = -9


@dataclass(slots=True)
class Stage:
    """The means that all chapters share. ``short`` stands for the version of a few minutes."""

    brokers: Brokers
    folder: Path
    chance: random.Random
    short: bool
    kills: int | None
    remote: bool = False  # whether drains on Spark run on a server of Spark Connect

    @property
    def broker(self) -> Broker:
        """The only broker, or the first one."""
        return self.brokers.each[0]

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings.load(self.brokers.bootstrap_servers)

    def times(self, short: int, long: int) -> int:
        """Return how often a chapter acts: as often as it says, unless --kills has another
        number."""
        return self.kills or (short if self.short else long)

    def backlog(
        self, messages: int, pace: Pace, spread: Spread = ONE_PARTITION
    ) -> AbstractContextManager[Backlog]:
        return Backlog.on(self.settings, self.folder, messages, pace, spread)


@dataclass(slots=True)
class Report:
    """The findings of a chapter.

    Attributes:
        sub_messages: how many the backlog has.
        times: how often something was done to the drain.
        codes: the exit codes that were expected and came.
        judged: how the laws held, by the trace.
        rewinds: whether anything may be handled twice at all.
        remarks: figures of this chapter alone.
        broken: what should have been otherwise.
    """

    sub_messages: int
    times: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    judged: Judged | None = None
    rewinds: bool = True
    remarks: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def ends(self, process: Process, *expected: int) -> int:
        """Wait for the end of a process, and report any other exit code than these as broken.

        A process that hangs is killed.
        """
        try:
            code = process.ends()
        except subprocess.TimeoutExpired:
            self.broken.append(f"it hung for {PATIENCE_S:.0f} s")
            process.send(signal.SIGKILL)
            code = process.ends()
        self.codes[code] += 1
        if code not in expected:
            printed = " / ".join(process.output.strip().splitlines()[-4:])
            self.broken.append(f"exit {code}, not {' or '.join(map(str, expected))}: {printed}")
        return code

    def ensure(self, fact: bool, failure: str) -> None:
        if not fact:
            self.broken.append(failure)

    def finish(self, backlog: Backlog, *more: str) -> None:
        """Resume until everything is done."""
        self.ends(backlog.begin(*more), EXIT_DONE)

    def judge(self, backlog: Backlog, at_once: int = 0) -> Judged:
        """Compare the trace with the laws. Up to ``at_once`` sub-messages may be in a handler
        beside another of their lane.

        A chapter with several backlogs judges each of them.
        """
        found = judge(backlog.trace, backlog.sub_messages)
        self.judged = found if self.judged is None else self.judged + found
        self.ensure(not found.lost, f"{found.lost} lost")
        self.ensure(not found.out_of_order, f"{found.out_of_order} out of order")
        self.ensure(found.at_once <= at_once, f"{found.at_once} at once on one lane")
        self.ensure(self.rewinds or not found.repeated, f"{found.repeated} repeated")
        return found

    def check_repeats(self, runs: Sequence[Run], concurrency: int) -> None:
        """Check how much was repeated for each run that was killed, against the law and the
        target."""
        most = max((run.repeated for run in runs), default=0)
        within = sum(run.repeated <= 2 * concurrency + run.just_now for run in runs)
        self.remarks.append(
            f"most for one {most:,}; {within} of {len(runs)} within 2 x {concurrency} + 100 ms"
        )
        over = [run for run in runs if run.repeated > concurrency + run.lately]
        self.ensure(not over, f"more than a plan interval repeated: {over}")

    @property
    def line(self) -> str:
        """Return a row of the table, without the chapter's name."""
        found = self.judged
        codes = ", ".join(
            f"{code} x{times}" if times > 1 else str(code) for code, times in self.codes.items()
        )
        cells = [str(self.times), codes]
        if found is None:
            cells += [""] * 7
        else:
            each = found.repeated / self.times if self.times else 0
            cells += [
                f"{sum(run.begun for run in found.runs.values()):,}",
                f"{found.repeated:,}",
                f"{each:,.0f}",
                f"{found.repeated / self.sub_messages:.3%}",
                str(found.lost),
                str(found.out_of_order),
                str(found.at_once),
            ]
        cells += ["; ".join(self.remarks), "HELD" if not self.broken else "BROKEN"]
        return " | ".join(cells)


def limit(process: Process, what: int, least: int) -> None:
    """Lower a limit of a running process (Linux). ``what`` is one of ``resource.RLIMIT_…``."""
    _, hard = resource.prlimit(process.pid, what)
    resource.prlimit(process.pid, what, (least, hard))


@contextmanager
def piped(trace: Path) -> Iterator[Path]:
    """Make a pipe whose lines go to the trace, for handlers that may not write to files."""
    pipe = trace.with_suffix(".pipe")
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # The pipe has a writer of its own, so it never comes to an end.
    over = threading.Event()

    def copy() -> None:
        with trace.open("ab", buffering=0) as lines:
            while True:
                if select.select([end], [], [], 0.02)[0]:
                    lines.write(os.read(end, 1 << 16))
                elif over.is_set():
                    return

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        yield pipe
    finally:
        over.set()
        copying.join()
        os.close(end)
        pipe.unlink()
