"""Follows a topic for as long as you like, while the drain is killed and the broker restarts.

A producer adds records to a few partitions all the time. Every ``--kill-every`` seconds the drain
is killed with ``kill -9`` and resumed, and every ``--restart-every`` seconds the broker is stopped
and started again. Halfway, the topic gets another partition. At the end the drain gets
``--until-lag 0``. The scenario then prints the ages of records when they were handled (p50, p99 and
the highest), the memory and the size of the plan over time, and how many records were handled
twice. It fails if a record was never handled, if two of a sub-key and process came in the wrong
order, or if the memory or the plan grew.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.fill import create_topic
from scenarios.soak.__main__ import look_at

HANDLER = Path(__file__).with_name("handler.py")
TOPIC = GROUP = "follow"
PARTITIONS = 3
KEYS = 50
SETTLED = 0.25  # The first part of the time, in which the memory may still grow.
GROWTH = 0.1


class Producing:
    """A thread that goes on producing, and counts what was acknowledged, by partition."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.acknowledged = Counter[int]()
        self.partitions = PARTITIONS
        self._rate, self._over = rate, threading.Event()
        self._conf = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "topic.metadata.refresh.interval.ms": 1000,
            "message.timeout.ms": 0,
            "log_level": 0,
        }
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        producer, number, begun_s = Producer(self._conf), 0, time.monotonic()
        while not self._over.is_set():
            while number < (time.monotonic() - begun_s) * self._rate:
                partition = number % self.partitions
                with suppress(Exception):  # A partition that was just added is not known yet.
                    producer.produce(
                        *(TOPIC, b"x" * 200, f"{partition}-{number % KEYS}".encode(), partition),
                        on_delivery=self._delivered,
                    )
                number += 1
            producer.poll(0.05)
        producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.follow", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=300, help="records per second")
    parser.add_argument("--kill-every", type=float, default=60.0)
    parser.add_argument("--restart-every", type=float, default=290.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "broker", die_with_parent=True, print_line=print) as broker:
            create_topic(ClientSettings.load(broker.bootstrap_servers), TOPIC, PARTITIONS)
            with Producing(broker.bootstrap_servers, given.rate) as producing:
                looks = list(_follow(broker, folder, given, producing))
            resume(broker.bootstrap_servers, folder, "--until-lag", "0").wait()
        _report(folder, producing.acknowledged, looks)


def resume(bootstrap: str, folder: Path, *how: str) -> subprocess.Popen[bytes]:
    """Start the drain, or resume it if it has a plan."""
    plan = folder / "plan.json"
    words = ["run", "--topic", TOPIC, "--group", GROUP, "--from", "earliest", "--plan", str(plan)]
    if plan.exists():
        words = ["resume", str(plan)]
    options = ["-b", bootstrap, "--handler", f"{HANDLER}:Ages", "--set", f"record={folder}/record"]
    quiet = [sys.executable, "-m", "drainer", "--quiet"]
    return subprocess.Popen([*quiet, *words, *options, "--yes", *how])


@contextmanager
def following(bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = resume(bootstrap, folder, "--follow")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _follow(
    broker: Broker, folder: Path, given: argparse.Namespace, producing: Producing
) -> Iterator[tuple[float, float, int]]:
    """Follow the topic, and yield the time, the memory in MiB and the size of the plan."""
    begun_s = time.monotonic()
    end_s, restart_s = begun_s + given.minutes * 60, begun_s + given.restart_every
    while time.monotonic() < end_s:
        with following(broker.bootstrap_servers, folder) as process:
            kill_s = min(end_s, time.monotonic() + given.kill_every)
            while time.monotonic() < kill_s:
                time.sleep(1.0)
                now_s = time.monotonic()
                if process.poll() is not None:
                    raise SystemExit(f"the drain ended with {process.returncode}")
                if now_s > restart_s:
                    print(f"{now_s - begun_s:.0f} s: the broker restarts", flush=True)
                    broker.stop()
                    time.sleep(5.0)
                    broker.start()
                    restart_s += given.restart_every
                if producing.partitions == PARTITIONS and now_s - begun_s > given.minutes * 30:
                    grown = NewPartitions(TOPIC, PARTITIONS + 1)
                    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                    admin.create_partitions([grown])[TOPIC].result(30)
                    producing.partitions += 1
                found = look_at(process.pid, folder / "plan.json", now_s - begun_s)
                # A process that has just started is still loading modules.
                if found is not None and now_s > kill_s - given.kill_every / 2:
                    yield found.at_s, found.resident_mib, found.plan_bytes


def _report(
    folder: Path, acknowledged: Counter[int], looks: list[tuple[float, float, int]]
) -> None:
    ages, times = list[int](), Counter[tuple[int, int]]()
    last: dict[tuple[str, str], int] = {}
    for line in (folder / "record").read_text().splitlines():
        partition, offset, key, age_ms, pid = line.split()
        times[int(partition), int(offset)] += 1
        ages.append(int(age_ms))
        if last.get((key, pid), -1) >= int(offset):
            raise SystemExit(f"{key}: offset {offset} came after {last[key, pid]}")
        last[key, pid] = int(offset)
    ages.sort()
    produced, repeats = acknowledged.total(), len(ages) - len(times)
    print(f"records: {produced:,} acknowledged, {len(times):,} handled, {repeats:,} of them again")
    for number, count in acknowledged.items():
        if count > sum(at == number for at, _ in times):
            raise SystemExit(f"partition {number}: records are lost")
    for share in (0.5, 0.99):
        print(f"age p{share * 100:g}: {ages[int(share * (len(ages) - 1))] / 1000:.2f} s")
    print(f"age, highest: {ages[-1] / 1000:.2f} s")
    settled = [look for look in looks if look[0] > SETTLED * looks[-1][0]]
    third = len(settled) // 3
    for what, column in (("memory, MiB", 1), ("plan, bytes", 2)):
        middle, end = (
            statistics.median(look[column] for look in part)
            for part in (settled[:third], settled[-third:])
        )
        print(f"{what}: {middle:,.1f}, and {end:,.1f} at the end = {end / middle - 1:+.1%}")
        if column == 1 and end > middle * (1 + GROWTH):
            raise SystemExit("the memory grew")


if __name__ == "__main__":
    main()
