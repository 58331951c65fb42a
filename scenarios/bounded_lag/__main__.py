"""Shows from which arrival rate on a drain that follows its topic falls behind without bound.

All records have one message key. Each is a bundle of FAN_OUT sub-messages over SUB_KEYS sub-keys.
For each rate, a producer adds records to a new topic, and a drain with ``--follow`` handles them,
once in the order of message keys and once in that of sub-keys. A third course has one hot sub-key,
which every HOT_EACH-th record has.

Prints the loads of the busiest lane and of all workers, the ages of the records that were handled
in the last quarter of the time, and how fast the age grew, beside what docs/explanation/proofs.md
says. Draws ages against rates. Fails if a drain falls behind although all loads are at most 0.8, or
keeps up although one is at least 1.2.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from drainer.kafka.settings import ClientSettings
from scenarios.bounded_lag.chart import draw
from scenarios.brokers import Broker
from scenarios.fill import create_topic

HANDLER = Path(__file__).with_name("handler.py")
FAN_OUT, SUB_KEYS, HOT_EACH = 10, 400, 2
CALL_S, CONCURRENCY = 0.010, 50
SURE = 0.2  # Loads that are as near to 1 as this are not judged.
FALLS_BEHIND = 0.1  # By so many seconds in each second.
STARTS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Course:
    """One way to drain, and the rates of records per second at which it is tried."""

    name: str
    order: str
    rates: tuple[int, ...]
    hot: bool = False

    def loads(self, rate: int) -> tuple[float, float]:
        """Return the load of the busiest lane, and that of all workers as a share of them."""
        whole = rate * FAN_OUT * CALL_S
        if self.order == "key":
            return whole, 0.0  # All that comes has one lane, so other workers have no work.
        hot = rate / HOT_EACH * CALL_S if self.hot else 0.0
        return max(hot, whole / SUB_KEYS), whole / CONCURRENCY


COURSES = (
    Course("message key", "key", (2, 5, 8, 12, 20, 50)),
    Course("sub-key", "sub-key", (2, 5, 8, 12, 20, 50, 100, 200, 300, 400, 600)),
    Course("sub-key, one hot", "sub-key", (50, 100, 160, 240, 300), hot=True),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one drain did at one rate: ages in seconds, and their growth in each second."""

    rate: int
    p50_s: float
    p99_s: float
    growth: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.bounded_lag", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each rate")
    parser.add_argument("--chart", type=Path, default=Path("bounded_lag.svg"))
    given = parser.parse_args()
    wrong, drawn = list[str](), dict[str, list[Seen]]()
    print("order, records/s: loads of the busiest lane and of all workers; ages; growth (expected)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "broker", die_with_parent=True, print_line=print) as broker:
            for course in COURSES:
                for rate in course.rates:
                    seen = _measure(broker.bootstrap_servers, folder, course, rate, given.seconds)
                    drawn.setdefault(course.name, []).append(seen)
                    wrong += _judged(course, seen)
    draw(drawn, given.chart)
    if wrong:
        raise SystemExit("\n".join(wrong))


def _measure(bootstrap: str, folder: Path, course: Course, rate: int, seconds: float) -> Seen:
    topic = f"{course.name.replace(', ', '-').replace(' ', '-')}-{rate}"
    create_topic(ClientSettings.load(bootstrap), topic, 1)
    record = folder / topic
    with _following(bootstrap, folder, topic, course.order, record) as drain:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        producer.produce(topic, b'["first"]', b"customer")
        producer.flush(30)
        _await_first(record, drain, folder / "errors")
        begun_s, chance = time.time(), random.Random(rate)
        for number in range(int(rate * seconds)):
            while (early_s := begun_s + number / rate - time.time()) > 0:
                producer.poll(early_s)
            keys: list[object] = [chance.randrange(SUB_KEYS) for _ in range(FAN_OUT)]
            if course.hot and number % HOT_EACH == 0:
                keys[0] = "hot"
            producer.produce(topic, json.dumps(keys), b"customer")
        end_s = time.time()
        producer.flush(30)
    lines = [line.split() for line in record.read_text().splitlines()]
    handled = [
        (float(at_s), float(age_s)) for at_s, age_s in lines if begun_s < float(at_s) < end_s
    ]
    return _seen(rate, handled, begun_s, end_s)


@contextmanager
def _following(
    bootstrap: str, folder: Path, topic: str, order: str, record: Path
) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", "-t", topic, "-g", topic, "--from", "earliest", "--follow", "--yes"]
    words += ["-b", bootstrap, "--handler", f"{HANDLER}:Ages", "--plan", f"{folder}/{topic}.json"]
    words += ["-c", str(CONCURRENCY), "--tune", f"order={order}"]
    words += ["--set", f"record={record}", "--set", f"call_s={CALL_S}"]
    with (folder / "errors").open("w") as errors:
        command = [sys.executable, "-m", "drainer", "--quiet", *words]
        drain = subprocess.Popen(command, stderr=errors)
    try:
        yield drain
    finally:
        drain.kill()
        drain.wait()


def _await_first(record: Path, drain: subprocess.Popen[bytes], errors: Path) -> None:
    until_s = time.monotonic() + STARTS_WITHIN_S
    while not record.exists() or not record.stat().st_size:
        if drain.poll() is not None or time.monotonic() > until_s:
            raise SystemExit(f"the drain does not handle its first record: {errors.read_text()}")
        time.sleep(0.05)


def _seen(rate: int, handled: list[tuple[float, float]], begun_s: float, end_s: float) -> Seen:
    """Compare the second quarter of the time with the last one."""
    quarter_s = (end_s - begun_s) / 4
    quarters = [
        sorted(age_s for at_s, age_s in handled if from_s <= at_s < from_s + quarter_s)
        for from_s in (begun_s + quarter_s, end_s - quarter_s)
    ]
    if not all(quarters):
        raise SystemExit(f"at {rate} records/s, nothing was handled for a quarter of the time")
    ages, last = quarters[1], [quarter[int(0.99 * (len(quarter) - 1))] for quarter in quarters]
    return Seen(rate, statistics.median(ages), last[1], (last[1] - last[0]) / (2 * quarter_s))


def _judged(course: Course, seen: Seen) -> Iterator[str]:
    """Print what was seen, and yield what is not as it should be."""
    lane, workers = course.loads(seen.rate)
    load = max(lane, workers)
    expected = max(0.0, 1 - 1 / load)
    what = f"{course.name}, {seen.rate:,}/s"
    print(
        f"{what}: {lane:.2f} and {workers:.2f}; p50 {seen.p50_s:.2f} s, p99 {seen.p99_s:.2f} s;"
        f" {seen.growth:+.2f} ({expected:+.2f}) s/s",
        flush=True,
    )
    falls_behind = seen.growth > FALLS_BEHIND
    if abs(load - 1) >= SURE and falls_behind != (load > 1):
        yield f"{what}: {'falls behind' if falls_behind else 'keeps up'}, with a load of {load:.2f}"


if __name__ == "__main__":
    main()
