"""Compares the time left that drains show with the truth, at every tenth of each drain and in its
tail.

Messages split into 1 to 60 operations, spread evenly over the backlog. There are drains with
nothing first, with a class first, with a long lane, with folding, and with barriers, in one process
and on Spark. An estimate counts until the next one is shown. The scenario ends with exit code 1 if
an estimate is off by more than a quarter of what was left, and by over a second. In one process, it
also does if an estimate jumps by more than that from one status to the next, without an event.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from drainer.control.client import watch
from drainer.errors import Refused
from drainer.kafka.settings import ClientSettings
from drainer.model.status import Status
from scenarios.brokers import Broker, delete_topic
from scenarios.fill import create_topic, fill

HANDLERS = Path(__file__).with_name("handlers.py")
WITHIN, WITHIN_S = 0.25, 1.0
SHARES = (*(n / 10 for n in range(1, 10)), 0.95, 0.98)  # The places at which estimates are checked.
SILENT_FIRST_S = 3.0  # No estimate is shown before this time.
# There may be no estimate for this long, because Spark starts between two passes.
SILENT_MOST_S = 30.0
LATENCY_MS, CONCURRENCY = 10, 20
FAN_OUT_MOST, FAN_OUT = 60, 30.5  # The greatest fan-out of a message, and the mean.
CUSTOMERS, DOCUMENTS = 10, 400  # The customers, and the documents of each.
# It has no factor in common with the numbers above, so each run of 60 messages has every fan-out
# once.
STRIDE = 37
PADDING = "x" * 200  # With this padding of each operation, the backlog has several slices.
SHOW_FROM_S = 0.2  # The time between two tries to find the drain.
ENGINES = {
    "process": ("--engine", "process"),
    "spark": ("--master", "local[2]", "--engine", "spark", "--spark-conf", "drainer.slice=4MiB"),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog, and how it is drained. ``faster`` is about how many sub-messages one call has."""

    name: str
    handler: str = "Operations"
    words: tuple[str, ...] = ()
    barrier_every: int = 0  # One of so many messages is a barrier.
    barriers_from: float = 0.0  # Barriers come from this share of the backlog on.
    hot_share: float = 0.0  # This share of the operations is on one document.
    faster: float = 1.0

    def records(self, messages: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, value, partition) of every message. All have one key."""
        number = 0
        for message in range(messages):
            operations = []
            for _ in range(1 + message * STRIDE % FAN_OUT_MOST):
                customer, document = number % CUSTOMERS, number // CUSTOMERS % DOCUMENTS
                hot = number * STRIDE % 100 < 100 * self.hot_share
                name = "hot" if hot else f"{customer}-{document}"
                operations.append({"document": name, "customer": customer, "padding": PADDING})
                number += 1
            barrier = (
                self.barrier_every > 0
                and message >= messages * self.barriers_from
                and message % self.barrier_every == 0
            )
            yield b"all", orjson.dumps({"operations": operations, "barrier": barrier}), 0


FIRST = ("--first", "payload.customer < 3")
WORKLOADS = (
    Workload("nothing first"),
    Workload("30% first", words=FIRST),
    Workload("2 classes first", words=(*FIRST, "--first", "payload.customer == 7")),
    Workload("a lane of 1.7 W/C", hot_share=1.7 / CONCURRENCY),
    Workload("a tail of one lane", hot_share=0.2),
    Workload("30% first, in a lane of 1.7 W/C", words=FIRST, hot_share=1.7 / CONCURRENCY),
    Workload("50% skipped by a rule", words=("--skip", "payload.customer > 4")),
    Workload("folded, 30% on one document", "Folded", hot_share=0.3, faster=1.4),
    Workload("barriers", barrier_every=50),
    Workload("30% first, then barriers", words=FIRST, barrier_every=50, barriers_from=0.5),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The progress that a drain showed, and when."""

    at_s: float
    status: Status


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.eta", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="the seconds that each drain should take"
    )
    parser.add_argument(
        "--engine", choices=ENGINES, action="append", help="the engine; by default both"
    )
    parser.add_argument("--only", help="only workloads whose names contain this text")
    given = parser.parse_args()
    wanted = [each for each in WORKLOADS if (given.only or "") in each.name]
    good = True
    print("ratio of the time left that was shown to the truth, at these shares of the drain\n")
    print(f"| engine | workload | took | {' | '.join(f'{each:.0%}' for each in SHARES)} | jumps |")
    print("|---" * (4 + len(SHARES)) + "|")
    with (
        TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", print_line=_quiet) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        for workload in wanted:
            for engine in given.engine or ENGINES:
                moments = _drain(settings, Path(folder), workload, engine, given.seconds)
                good &= _print(engine, workload.name, moments, lambda status: status.progress.eta_s)
                while (where := _turn(moments)) is not None:
                    own = [each for each in moments if _turn([each]) == where]
                    moments = moments[moments.index(own[-1]) + 1 :]
                    # If a barrier or full memory cuts a class short, its end is not that of a turn.
                    if not _is_cut(moments[0].status, where):
                        good &= _print(engine, f"… {where}", own, _eta_of_class)
    raise SystemExit(0 if good else "a time left was off by more than a quarter")


def _drain(
    settings: ClientSettings, folder: Path, workload: Workload, engine: str, seconds: float
) -> list[Moment]:
    name = f"eta-{secrets.token_hex(3)}"
    calls = seconds * CONCURRENCY * 1000 / LATENCY_MS * workload.faster
    create_topic(settings, name)
    try:
        fill(settings, name, workload.records(round(calls / FAN_OUT)))
        plan = folder / f"{name}.json"
        command = [
            *(sys.executable, "-m", "drainer", "--quiet", "run", "--topic", name, "--group", name),
            *("--handler", f"{HANDLERS}:{workload.handler}", "-b", settings.bootstrap_servers),
            *("--from", "earliest", "--plan", str(plan), "--yes"),
            *("-c", str(CONCURRENCY), "--set", f"latency_ms={LATENCY_MS}"),
            *("--tune", "buffer=16MiB", *ENGINES[engine], *workload.words),
        ]
        with subprocess.Popen(command, cwd=folder) as process:
            moments = list(_watched(plan, process))
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}")
        return moments
    finally:
        delete_topic(settings, name)


def _watched(plan: Path, process: subprocess.Popen[bytes]) -> Iterator[Moment]:
    while process.poll() is None:
        with suppress(Refused):  # The drain does not run yet.
            for report in watch(plan):
                if report.status is not None:
                    yield Moment(time.monotonic() - report.age_s, report.status)
        time.sleep(SHOW_FROM_S)


def _turn(moments: Sequence[Moment]) -> str | None:
    turn = moments[0].status.progress.turn if moments else None
    return None if turn is None else turn.where


def _is_cut(status: Status, where: str) -> bool:
    return any(each.cut for each in status.progress.classes if each.where == where)


def _eta_of_class(status: Status) -> float | None:
    return None if status.progress.turn is None else status.progress.turn.eta_s


def _print(
    engine: str, name: str, moments: Sequence[Moment], eta: Callable[[Status], float | None]
) -> bool:
    """Print a line of the table, and return whether all in it are near enough."""
    begun_s, ended_s = moments[0].at_s, moments[-1].at_s
    cells, good = [], True
    for share in SHARES:
        due_s = begun_s + (ended_s - begun_s) * share
        shown = [each for each in moments if each.at_s <= due_s and eta(each.status) is not None]
        eta_s = eta(shown[-1].status) if shown else None
        if not shown and due_s - begun_s < SILENT_FIRST_S:
            cells.append("none")
            continue
        if eta_s is None or due_s - shown[-1].at_s > SILENT_MOST_S:
            cells.append("none OFF")
            good = False
            continue
        left_s = ended_s - shown[-1].at_s
        near = _near(eta_s, left_s)
        good &= near
        cells.append(f"{eta_s / left_s:.2f}" + ("" if near else " OFF"))
    jumps = sum(
        not _near(eta(after.status) or 0.0, max(0.0, before_s - (after.at_s - before.at_s)))
        for before, after in pairwise(moments)
        if (before_s := eta(before.status)) is not None and eta(after.status) is not None
        if before.at_s - begun_s >= (ended_s - begun_s) / 10
    )
    cells.append(str(jumps))
    print(f"| {engine} | {name} | {ended_s - begun_s:.1f} s | {' | '.join(cells)} |", flush=True)
    return good and not (jumps and engine == "process")


def _near(shown_s: float, truth_s: float) -> bool:
    return abs(shown_s - truth_s) <= max(WITHIN * truth_s, WITHIN_S)


def _quiet(_: str) -> None:
    """Drop the broker's progress, which is not shown."""


if __name__ == "__main__":
    main()
