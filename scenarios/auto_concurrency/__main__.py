"""Drains with fixed concurrencies and with ``auto``, on downstreams that have 300 slots.

There are three downstreams. One lets the 301st call wait, one becomes slower the more calls are in
it, and one refuses the 301st call. The best fixed value is the lowest one that has 95% of the best
throughput. The scenario prints a table for each downstream and draws a picture. It ends with exit
code 1 if auto did not settle within 20% of the best fixed value, or has less than 90% of its
throughput.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from drainer.kafka.settings import ClientSettings
from scenarios.auto_concurrency.chart import draw
from scenarios.auto_concurrency.handler import FAN_OUT, SLOTS
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill

HANDLER = Path(__file__).with_name("handler.py")
TOPIC = "auto"
FIXED = (100, 200, 300, 400, 600, 1000)
RETRIES = ("--retries", "1000", "--tune", "retry-delay=50ms", "--tune", "breaker=off")
KINDS = {
    "waits": ("Pool", FIXED, ()),
    "becomes slower": ("Degrading", FIXED, ()),
    "refuses": ("Refusing", FIXED[:4], RETRIES),  # With more calls, hardly anything gets done.
}
ENOUGH = 0.95
WITHIN = 0.2
AT_LEAST = 0.9


@dataclass(frozen=True, slots=True)
class Run:
    """One drain: its sub-messages per second, its failed attempts, and its report of
    concurrency."""

    concurrency: str
    rate: float
    failures: int
    auto: dict[str, object]
    # Seconds, sub-messages in the handler, and sub-messages done.
    trace: tuple[tuple[float, int, int], ...]

    @property
    def last_rate(self) -> float:
        """The number of sub-messages per second in the last quarter."""
        (begun, _, before), (ended, _, done) = self.trace[len(self.trace) * 3 // 4], self.trace[-1]
        return (done - before) / max(ended - begun, 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.auto_concurrency", description=__doc__
    )
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=8.0,
        help="the seconds that a drain with 300 calls at once takes",
    )
    parser.add_argument(
        "--auto-seconds",
        type=float,
        default=40.0,
        help="the seconds that the drain with auto takes",
    )
    parser.add_argument("--only", choices=tuple(KINDS), action="append")
    parser.add_argument("--chart", type=Path, default=Path("auto_concurrency.svg"))
    given = parser.parse_args()
    per_s = SLOTS / (given.latency_ms / 1000) / FAN_OUT
    runs: dict[str, list[Run]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True, print_line=print) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        create_topic(settings, TOPIC)
        most = int(per_s * max(given.seconds, given.auto_seconds))
        fill(settings, TOPIC, ((b"one key", b"", 0) for _ in range(most)))
        for kind in given.only or KINDS:
            runs[kind] = []
            for concurrency in (*map(str, KINDS[kind][1]), "auto"):
                seconds = given.auto_seconds if concurrency == "auto" else given.seconds
                until = int(per_s * seconds)
                runs[kind].append(
                    _drain(broker.bootstrap_servers, kind, concurrency, until, given.latency_ms)
                )
                print(_row(kind, runs[kind][-1]), flush=True)
    good = [_judge(kind, found) for kind, found in runs.items()]
    draw(
        {kind: [(int(r.concurrency), r.rate) for r in found[:-1]] for kind, found in runs.items()},
        {
            kind: (chosen, found[-1].last_rate)
            for kind, found in runs.items()
            if (chosen := _chosen(found[-1]))
        },
        {kind: [(at, inside) for at, inside, _ in runs[kind][-1].trace] for kind in runs},
        SLOTS,
        given.chart,
    )
    print(f"chart: {given.chart}")
    raise SystemExit(0 if all(good) else 1)


def _drain(bootstrap: str, kind: str, concurrency: str, until: int, latency_ms: float) -> Run:
    handler, _, more = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        command = [
            *(sys.executable, "-m", "drainer", "--quiet", "run", "--topic", TOPIC, "-b", bootstrap),
            *("--group", f"{handler}-{concurrency}", "--from", "earliest", "--until", str(until)),
            *("--handler", f"{HANDLER}:{handler}", "--concurrency", concurrency, *more),
            *("--set", f"latency_ms={latency_ms}", "--set", f"trace={trace}"),
            *("--plan", str(Path(folder) / "plan.json"), "--yes", "-o", "json"),
        ]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr.decode()}")
        points = [line.split() for line in trace.read_text().splitlines()]
    summary = orjson.loads(done.stdout)
    begun = float(points[0][0])
    return Run(
        concurrency,
        summary["rate_average"],
        summary["failures"],
        summary["auto"] or {},
        tuple((float(at) - begun, int(inside), int(count)) for at, inside, count in points),
    )


def _row(kind: str, run: Run) -> str:
    failed = f"  {run.failures:,} attempts failed" if run.failures else ""
    return f"{kind:>15}  concurrency {run.concurrency:>5}  {run.rate:>9,.0f}/s{failed}"


def _judge(kind: str, runs: Sequence[Run]) -> bool:
    *fixed, auto = runs
    most = max(run.rate for run in fixed)
    best = min(int(run.concurrency) for run in fixed if run.rate >= ENOUGH * most)
    chosen, rate = _chosen(auto), auto.last_rate
    near = (1 - WITHIN) * best <= chosen <= (1 + WITHIN) * best
    print(
        f"\na downstream that {kind} past {SLOTS}: the best fixed value is {best}, auto settled at"
        f" {chosen}: {chosen / best - 1:+.0%}, {'within' if near else 'NOT within'} {WITHIN:.0%}"
        f"\n  {rate:,.0f}/s there, {rate / most:.1%} of the best; {auto.rate:,.0f}/s with the"
        f" search, {auto.rate / most:.1%}; {auto.auto.get('why')}"
    )
    return near and rate >= AT_LEAST * most


def _chosen(run: Run) -> int:
    chosen = run.auto.get("settled")
    return chosen if isinstance(chosen, int) else 0


if __name__ == "__main__":
    main()
