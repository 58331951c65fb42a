"""Drains a backlog under ``kill -9``, and counts what was lost, repeated and out of order."""

from __future__ import annotations

import argparse
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from drainer import sandbox
from drainer.errors import EXIT_DONE
from drainer.kafka.cluster import Cluster
from drainer.kafka.fill import create_topic, delete_topic, fill
from drainer.kafka.settings import ClientSettings
from scenarios.side_by_side.workloads import Workload

HANDLER = Path(__file__).with_name("handler.py")
KILLED = -9


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.crash_and_resume", description=__doc__
    )
    parser.add_argument(
        "-b", "--bootstrap-server", help="brokers; default: the sandbox, brought up"
    )
    parser.add_argument("--messages", type=int, default=20_000, help="of 50 sub-messages each")
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20, help="at most; then it is let finish")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    bootstrap = given.bootstrap_server or sandbox.up(say=print).bootstrap_servers
    settings = ClientSettings.load(bootstrap)
    workload = Workload("crash", given.messages, 50, 14_000, one_key=True, latency_ms=5)
    topic, group = f"crash-{secrets.token_hex(3)}", f"crash-{secrets.token_hex(3)}"
    create_topic(settings, topic)
    try:
        fill(settings, topic, workload.records())
        print(f"{workload.sub_messages:,} sub-messages; seed {given.seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            lines = _drain(bootstrap, topic, group, Path(folder), given)
        _judge(lines, workload)
    finally:
        delete_topic(settings, topic)
        with Cluster.connect(settings) as cluster:
            cluster.delete_group(group)


def _drain(
    bootstrap: str, topic: str, group: str, folder: Path, given: argparse.Namespace
) -> list[str]:
    """Runs, kills and resumes until done; the lines of the trace, in their order."""
    chance = random.Random(given.seed)
    plan, trace = folder / "plan.json", folder / "trace"
    how = [
        *("--set", f"trace={trace}", "--concurrency", str(given.concurrency)),
        *("--yes", "--quiet", "--json"),
    ]
    start = [
        *("run", "--topic", topic, "--group", group, "-b", bootstrap, "--from", "earliest"),
        *("--handler", f"{HANDLER}:Traced", "--plan", str(plan)),
    ]
    kills = 0
    while True:
        command = ["resume", str(plan)] if plan.exists() else start
        process = subprocess.Popen(
            [sys.executable, "-m", "drainer", *command, *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if kills < given.kills:
            _wait_for_work(process, trace)
            try:
                process.wait(timeout=chance.uniform(0.0, 0.8))
            except subprocess.TimeoutExpired:
                process.kill()
        said, _ = process.communicate()
        if process.returncode == KILLED:
            kills += 1
            lines = trace.read_text().splitlines()
            repeated = len(lines) - len(set(lines))
            print(f"kill {kills}: {len(lines):,} handled, {repeated:,} repeated so far", flush=True)
            continue
        if process.returncode != EXIT_DONE:
            raise SystemExit(f"exit {process.returncode}: {said.decode()}")
        print(said.decode().strip())
        return trace.read_text().splitlines()


def _wait_for_work(process: subprocess.Popen[bytes], trace: Path) -> None:
    # A kill before the first sub-message shows nothing: starting takes longer than the drain.
    size = trace.stat().st_size if trace.exists() else 0
    while process.poll() is None and (not trace.exists() or trace.stat().st_size == size):
        time.sleep(0.002)


def _judge(lines: list[str], workload: Workload) -> None:
    handled = Counter(lines)
    lost = workload.sub_messages - len(handled)
    repeated = sum(handled.values()) - len(handled)
    gaps = _skipped_ahead(lines)
    print(
        f"lost {lost}; out of order {gaps}; repeated {repeated:,}"
        f" = {repeated / workload.sub_messages:.3%} of the backlog"
    )
    if lost or gaps:
        raise SystemExit("the laws do not hold")


def _skipped_ahead(lines: list[str]) -> int:
    """How often a sub-key went on past one that had not been handled: order allows rewinds only."""
    order: dict[str, list[tuple[int, int]]] = {}
    for line in lines:
        sub_key, offset, index = line.rsplit(" ", 2)
        order.setdefault(sub_key, []).append((int(offset), int(index)))
    wrong = 0
    for places in order.values():
        expected = sorted(set(places))
        position = {place: number for number, place in enumerate(expected)}
        reached = -1
        for place in places:
            number = position[place]
            wrong += number > reached + 1
            reached = number
    return wrong


main()
