"""What drainer has to do with each combination of versions, by its command."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.fill import create_topic, fill

HANDLER = Path(__file__).with_name("handler.py")
PARTITIONS, MESSAGES, FAN_OUT = 3, 200, 3
SUBS = PARTITIONS * MESSAGES * FAN_OUT
ENDS_WITHIN_S, LOOK_S = 120.0, 0.02
IN_FLIGHT = 20
NUMBERS = count()


class Failed(Exception):
    """Raised when drainer did something else than it promises."""


@dataclass
class Stage:
    """A topic of its own for each check, and the drainer that is checked."""

    drainer: Sequence[str]
    settings: ClientSettings
    folder: Path

    def topic(self, value: Callable[[int], Sequence[str]] | None = None) -> str:
        """Create a topic, and fill its partitions with messages of several operations each."""
        name = f"s-{next(NUMBERS)}"
        create_topic(self.settings, name, PARTITIONS)
        value = value or (lambda n: [f"hot-{n % 5}", f"doc-{n}", f"b-{n % 50}"])
        records = ((b"one", json.dumps(value(n)).encode()) for n in range(MESSAGES))
        fill(self.settings, name, ((*each, p) for each in records for p in range(PARTITIONS)))
        return name

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.drainer, *words, "-b", self.settings.bootstrap_servers],
            cwd=self.folder,
            # Otherwise PYTHONPATH could replace the drainer that is tried.
            env={n: text for n, text in os.environ.items() if not n.startswith("PYTHON")},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a command, and return its JSON. Raises Failed for another exit code."""
        out, err = self.start(*words, "-o", "json").communicate(timeout=ENDS_WITHIN_S)
        running_code = json.loads(out)["exit_code"] if out else None
        ensure(running_code == code, f"exit code {running_code}, not {code}: {err[-2000:]}")
        ensure("Traceback" not in err, err[-2000:])
        found: dict[str, Any] = json.loads(out)
        return found

    def drain_of(self, topic: str, *more: str) -> list[str]:
        options = ["--set", f"record={self.record(topic)}", "--from", "earliest", "--yes"]
        what = ["-t", topic, "-g", f"g-{topic}", "-H", f"{HANDLER}:Recorder"]
        return ["run", *what, *options, "--concurrency", str(IN_FLIGHT), *more]

    def plan(self, topic: str) -> str:
        return f"{topic}.g-{topic}.plan.json"

    def record(self, topic: str) -> Path:
        return self.folder / f"{topic}.record"

    def places(self, topic: str) -> list[tuple[str, int, int, int]]:
        """Return what was handled, in its order."""
        path = self.record(topic)
        lines = path.read_text().splitlines() if path.exists() else []
        return [(*json.loads(line),) for line in lines if line.endswith("]")]

    def ensure_drained(self, topic: str, *, repeats: int = 0) -> None:
        """Ensure that everything was handled, in order per sub-key, and committed."""
        places = self.places(topic)
        ensure(len(set(places)) == SUBS, f"{len(set(places))} of {SUBS} were handled")
        ensure(len(places) - SUBS <= repeats, f"{len(places) - SUBS} were repeated")
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for key, partition, *place in dict.fromkeys(places):
            at = (place[0], place[1])
            ensure(last.get((key, partition), (-1, -1)) < at, f"{key} was handled out of order")
            last[key, partition] = at
        with Cluster.connect(self.settings) as cluster:
            committed = cluster.committed(f"g-{topic}", topic, range(PARTITIONS))
        ensure(set(committed.values()) == {MESSAGES}, f"committed {committed}")


def ensure(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Failed(otherwise)


def drain(stage: Stage) -> None:
    topic = stage.topic()
    summary = stage.run(*stage.drain_of(topic, "--report", "report.html"))
    counts = summary["sub_messages"]
    ensure(counts["read"] == counts["done"] == SUBS, f"the account is {counts}")
    stage.ensure_drained(topic)
    stage.run("plan", "verify", stage.plan(topic))
    stage.run("plan", "undo", stage.plan(topic), "--yes")


def kill_and_resume(stage: Stage, *more: str, plan: str = "") -> None:
    topic = stage.topic()
    running = stage.start(*stage.drain_of(topic, "--set", "pause_ms=10", *more))
    until = time.monotonic() + ENDS_WITHIN_S
    while len(stage.places(topic)) < SUBS // 3 and running.poll() is None:
        ensure(time.monotonic() < until, "it handles nothing")
        time.sleep(LOOK_S)
    running.kill()
    running.communicate()
    options = ["--set", f"record={stage.record(topic)}", "--set", "pause_ms=", "--yes"]
    place = f"{plan}/{topic}.g-{topic}" if plan else stage.plan(topic)
    stage.run("resume", place, "-H", f"{HANDLER}:Recorder", *options)
    # What was in flight, and what finished in the 50 ms that the journal rests, and the write.
    stage.ensure_drained(topic, repeats=IN_FLIGHT + IN_FLIGHT * 15)


def plan_in_a_topic(stage: Stage) -> None:
    plans = f"kafka://plans-{next(NUMBERS)}"
    kill_and_resume(stage, "--plan", plans, plan=plans)


def dead_letters(stage: Stage) -> None:
    topic = stage.topic(lambda n: [f"a-{n}", "bad" if n % 10 == 0 else f"b-{n}", f"c-{n}"])
    bad = PARTITIONS * MESSAGES // 10
    policy = ("--retries", "0", "--on-failure", "dead-letter")
    summary = stage.run(*stage.drain_of(topic, *policy), code=6)
    ensure(summary["sub_messages"]["dead"] == bad, f"the account is {summary['sub_messages']}")
    dead = summary["dead_letter_topic"]
    options = ["--set", f"record={stage.record(topic)}", "--set", "fixed=1", "--yes"]
    redriven = stage.run("redrive", "-t", dead, "-H", f"{HANDLER}:Recorder", *options)
    ensure(redriven["sub_messages"]["done"] == bad, f"redriven: {redriven['sub_messages']}")
    stage.ensure_drained(topic)


def transactions(stage: Stage) -> None:
    topic = f"s-{next(NUMBERS)}"
    create_topic(stage.settings, topic, 1)
    producer = Producer(
        {"bootstrap.servers": stage.settings.bootstrap_servers, "transactional.id": f"t-{topic}"}
    )
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, json.dumps([f"k-{number}"]).encode())
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
    summary = stage.run(*stage.drain_of(topic))
    keys = {key for key, *_ in stage.places(topic)}
    ensure(keys == {f"k-{n}" for n in range(0, 20, 2)}, f"handled {sorted(keys)}")
    ensure(summary["partitions"]["0"]["committed"] == 40, "the end is a transaction's marker")


def active_group(stage: Stage) -> None:
    topic = stage.topic()
    with member(stage, topic):
        refused = stage.run(*stage.drain_of(topic), code=3)
    ensure(f"group g-{topic} is in use" in refused["error"], refused["error"])
    ensure(not stage.places(topic), "something was handled")


@contextmanager
def member(stage: Stage, topic: str) -> Iterator[None]:
    """Keep a consumer of the topic's group alive."""
    conf = {"bootstrap.servers": stage.settings.bootstrap_servers, "group.id": f"g-{topic}"}
    consumer = Consumer({**conf, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        until = time.monotonic() + ENDS_WITHIN_S
        while not consumer.assignment():
            ensure(time.monotonic() < until, "the group's member gets no partitions")
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


def before_and_beside(stage: Stage) -> None:
    topic = stage.topic()
    stage.run("probe", "-t", topic, "-g", f"g-{topic}")
    where = ("-t", topic, "-g", f"g-{topic}", "-H", f"{HANDLER}:Recorder", "--from", "earliest")
    stage.run("inspect", *where)
    stage.run("estimate", *where, "--latency", "10ms")
    with Cluster.connect(stage.settings) as cluster:
        cluster.alter_committed(f"g-{topic}", topic, {0: 0})
    found = stage.run("lag", "-g", f"g-{topic}", "--for", "1s")
    ensure(str(MESSAGES) in json.dumps(found), f"the lag is {found}")


def drain_on_spark(stage: Stage) -> None:
    topic = stage.topic()
    spark = ("--engine", "spark", "--master", "local[2]", "--spark-conf", "drainer.tasks=2")
    summary = stage.run(*stage.drain_of(topic, *spark))
    ensure(summary["sub_messages"]["done"] == SUBS, f"the account is {summary['sub_messages']}")
    stage.ensure_drained(topic)


ON_SPARK = "drain on Spark"
CHECKS: dict[str, Callable[[Stage], None]] = {
    "drain": drain,
    "kill and resume": kill_and_resume,
    "dead letters": dead_letters,
    "transactions": transactions,
    "active group refused": active_group,
    "plan in a topic": plan_in_a_topic,
    "probe, inspect, estimate, lag": before_and_beside,
}
