"""Finds what brokers of a known boundary tolerate, twice, and then with half the capacity.

There are three cases: on one broker a quota for what clients may write; on three brokers request
handler threads that are few and slow, or followers that copy slowly and fall out of the in-sync
set. ``drainer limits`` runs on each of them, once more on brokers like them, and on brokers with
half the capacity. The case of request handlers also runs on a single broker.

It prints the boundaries with what decided them, and writes reports. It ends with 1 when a second
run is off by more than 15%, when half the capacity does not give about half the boundary, when a
boundary is not near what it must be, or when something else decided it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drainer.errors import EXIT_INTERRUPTED
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import MeasuredLimits
from scenarios.broker_limits.cases import CASES, Case

WITHIN = 0.15  # The runs may differ by this share from each other, and from half of the capacity.
# The runs, each with the share of the usual capacity that it has.
RUNS = (("first", 1.0), ("again", 1.0), ("half", 0.5))
MOST = 2.5  # Rates of up to this many times the boundary are tried.
PRODUCERS = 50  # These reach the boundary of the first run. Their pace is the same in all runs.
TRIES = 3  # A run that was interrupted is continued this often.


@dataclass(frozen=True, slots=True)
class Run:
    """One whole run on brokers of its own."""

    case: Case
    name: str
    times: float  # How many times its usual capacity each broker has.
    limits: MeasuredLimits
    took_s: float

    def shares(self) -> Iterator[tuple[int, float, str]]:
        """Return, for each size, the boundary as a share of what is expected, and what decided
        it."""
        for each in self.limits.boundaries:
            expected = self.case.mb_per_s * 1e6 * self.times
            yield each.message_bytes, each.bytes_per_s / expected, "; ".join(each.why)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.broker_limits", description=__doc__)
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--precision", default="10%")
    parser.add_argument("--trials", type=int, default=14)
    parser.add_argument("--warm-up", default="5s")
    parser.add_argument("--window", default="8s")
    parser.add_argument("--consumer-groups", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=Path("broker_limits"), help="the folder for results and reports"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    missed = False
    for case in CASES:
        if given.case is None or case.name in given.case:
            runs = [_run(case, name, capacity, case.brokers, given) for name, capacity in RUNS]
            runs += [_run(case, f"of-{count}", 1.0, count, given) for count in case.clusters]
            print(_table(runs), flush=True)
            for miss in _misses(runs):
                missed = True
                print(f"MISSED: {case.name}: {miss}", flush=True)
    sys.exit(1 if missed else 0)


def _run(case: Case, name: str, capacity: float, brokers: int, given: argparse.Namespace) -> Run:
    times = capacity * brokers
    path: Path = given.out / f"{case.name}-{name}.json"
    path.unlink(missing_ok=True)
    print(f"\n== {case.name}: {name}", flush=True)
    begun_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="broker-limits-") as folder,
        case.begin(Path(folder), capacity, brokers) as words,
    ):
        _drainer(
            *words,
            *("--yes", *case.words),
            *("--bytes", case.message_bytes, "--consumer-groups", str(given.consumer_groups)),
            *("--max-rate", f"{case.mb_per_s * times * MOST:g}MB/s"),
            *("--max-producers", str(round(PRODUCERS * MOST * times / case.brokers))),
            *("--precision", given.precision, "--trials", str(given.trials)),
            *("--warm-up", given.warm_up, "--window", given.window),
            *("--out", str(path), "--report", str(path.with_suffix(".html"))),
        )
    limits = LimitsFile(path).load()
    return Run(case, name, times, limits, time.monotonic() - begun_s)


def _drainer(*words: str) -> None:
    command = [sys.executable, "-m", "drainer", "limits", *words]
    for _ in range(TRIES):
        code = subprocess.run(command, check=False).returncode
        if code != EXIT_INTERRUPTED:
            break
    if code:
        sys.exit(code)


def _table(runs: Iterable[Run]) -> str:
    lines = [
        "",
        "| case | run | size | messages/s | MB/s | of what it must be | trials | decided by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for each, (_, share, why) in zip(run.limits.boundaries, run.shares(), strict=True):
            lines.append(
                f"| {run.case.name} | {run.name} ({run.took_s / 60:.1f} min) |"
                f" {each.message_bytes:,} | {each.messages_per_s:,.0f} |"
                f" {each.bytes_per_s / 1e6:.2f} | {share:.2f} |"
                f" {each.trials}, {each.end.value} | {why} |"
            )
    return "\n".join(lines)


def _misses(runs: list[Run]) -> Iterator[str]:
    first = {size: share for size, share, _ in runs[0].shares()}
    case = runs[0].case
    for run in runs:
        for size, share, why in run.shares():
            of_first = share / first[size] if first[size] else 0.0
            if abs(of_first - 1) > WITHIN:
                yield f"{run.name} at {size} is {of_first:.2f} of the first for its capacity"
            if not case.least < share < case.most:
                yield f"{run.name} at {size} is {share:.2f} of what it must be"
            if case.decides not in why:
                yield f"{run.name} at {size} was decided by: {why}"


if __name__ == "__main__":
    main()
