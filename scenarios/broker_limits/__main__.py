"""Finds what a throttled broker bears, twice, and then what one bears with half of it.

Brokers of the sandbox, each with a quota for what clients may write, so that their boundary is
known: it is the quota. Runs ``drainer limits`` over three message sizes on the first, once more on
a new one like it, and on one with half the quota. Prints the boundaries with what decided, writes
the report of the first. Ends with 1 when the second run is off by more than 15%,
when half the quota does not give about half the boundary, or when one is not near its quota.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drainer.errors import EXIT_INTERRUPTED
from drainer.java import find_java
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import Limits
from drainer.sandbox import Broker
from drainer.sandbox.jars import classpath, kafka_jars

WITHIN = 0.15  # of each other, and of half
# Of the quota, which counts batches with their heads: a fifth of what small messages take. And what
# was safe is below it, by as much as bursts are above the mean.
LEAST, AT_MOST = 0.6, 1.1
MOST = 2.5  # times the quota that is tried at most
PRODUCERS = 50  # that reach the quota of the first; of the same pace in all runs, for like batches
TRIES = 3  # of a run that was interrupted: it goes on
PROPERTIES = {
    # Quotas look at the last three seconds instead of eleven: trials are short here.
    "quota.window.num": "3",
    "quota.window.size.seconds": "1",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One whole run on a broker of its own."""

    name: str
    quota_mb_per_s: float
    limits: Limits
    path: Path
    took_s: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.broker_limits", description=__doc__)
    parser.add_argument("--quota-mb-per-s", type=float, default=2.0)
    parser.add_argument("--bytes", default="100,1KiB,10KiB")
    parser.add_argument("--precision", default="10%")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--warm-up", default="3s")
    parser.add_argument("--window", default="6s")
    parser.add_argument("--consumer-groups", type=int, default=2)
    parser.add_argument(
        "--jmx",
        action="store_true",
        help="look at request handlers, too: on a machine that is busy with other work they decide",
    )
    parser.add_argument("--out", type=Path, default=Path("broker_limits"), help="a folder")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    quota = given.quota_mb_per_s
    first = _run("first", quota, given, "--report", str(given.out / "limits.html"))
    again = _run("again", quota, given)
    half = _run("half", quota / 2, given)
    print(_table((first, again, half)))
    sys.exit(1 if _misses(first, again, half) else 0)


def _run(name: str, quota: float, given: argparse.Namespace, *more: str) -> Run:
    path: Path = given.out / f"{name}.json"
    path.unlink(missing_ok=True)
    print(f"\n== {name}: a broker that lets clients write {quota:g} MB/s", flush=True)
    begun_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="broker-limits-") as folder,
        Broker(
            Path(folder) / "broker", jmx=True, properties=PROPERTIES, die_with_parent=True
        ) as broker,
    ):
        limit_clients(broker, round(quota * 1e6))
        _drainer(
            *("-b", broker.bootstrap_servers),
            *(("--jmx", broker.jmx_address) if given.jmx else ()),
            *("--bytes", given.bytes, "--consumer-groups", str(given.consumer_groups)),
            *("--max-mb-per-s", f"{quota * MOST:g}"),
            *("--max-producers", str(round(PRODUCERS * MOST * quota / given.quota_mb_per_s))),
            *("--precision", given.precision, "--trials", str(given.trials)),
            *("--warm-up", given.warm_up, "--window", given.window),
            *("--out", str(path), "--yes", *more),
        )
    return Run(name, quota, LimitsFile(path).load(), path, time.monotonic() - begun_s)


def limit_clients(broker: Broker, produced_bytes_per_s: int) -> None:
    """Throttles every client that writes more than that, by Kafka's own tool."""
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers]
    quota = ["--entity-type", "clients", "--entity-default", "--add-config"]
    rate = f"producer_byte_rate={produced_bytes_per_s}"
    java = [str(find_java()), "-cp", classpath(kafka_jars())]
    subprocess.run([*java, *tool, "--alter", *quota, rate], check=True)


def _drainer(*words: str) -> None:
    command = [sys.executable, "-m", "drainer", "limits", *words]
    for _ in range(TRIES):
        code = subprocess.run(command, check=False).returncode
        if code != EXIT_INTERRUPTED:
            break
    if code:
        sys.exit(code)


def _table(runs: Sequence[Run]) -> str:
    lines = [
        "",
        "| run | quota | size | boundary, messages/s | MB/s | of the quota | trials | decided by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for each in run.limits.boundaries:
            share = each.bytes_per_s / (run.quota_mb_per_s * 1e6)
            lines.append(
                f"| {run.name} | {run.quota_mb_per_s:g} MB/s | {each.message_bytes:,} |"
                f" {each.messages_per_s:,.0f} | {each.bytes_per_s / 1e6:.2f} | {share:.2f} |"
                f" {each.trials}, {each.end.value} | {'; '.join(each.why)} |"
            )
    took = ", ".join(f"{run.name} {run.took_s / 60:.1f} min" for run in runs)
    return "\n".join([*lines, "", f"took: {took}"])


def _misses(first: Run, again: Run, half: Run) -> bool:
    missed = False
    for each in first.limits.boundaries:
        for other, ought in ((again, 1.0), (half, 0.5)):
            found = other.limits.boundary(each.message_bytes)
            ratio = 0.0 if found is None else found.messages_per_s / each.messages_per_s
            if abs(ratio / ought - 1) > WITHIN:
                of_first = f"{ratio:.2f} of first, not {ought:g}"
                print(f"MISSED: {other.name} at {each.message_bytes} is {of_first}")
                missed = True
    for run in (first, again, half):
        for each in run.limits.boundaries:
            share = each.bytes_per_s / (run.quota_mb_per_s * 1e6)
            if not LEAST < share < AT_MOST:
                print(f"MISSED: {run.name} at {each.message_bytes} is {share:.2f} of its quota")
                missed = True
    return missed


if __name__ == "__main__":
    main()
