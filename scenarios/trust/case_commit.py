"""Cases of a group's committed offsets: commits of others, and what becomes of a drain's own."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from drainer.errors import EXIT_REFUSED, EXIT_UNRESUMABLE
from drainer.kafka.settings import ClientSettings
from drainer.sandbox.ports import HOST, BrokerPorts
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill
from scenarios.trust import java_client
from scenarios.trust.case import Ended, Running, Stage, case, ensure
from scenarios.trust.cut_log import cut_log
from scenarios.trust.stalling import StallingProxy

PARTITIONS = 40
ENDS = 5
# The records of a log that is cut, and how many of them are handled before.
RECORDS, SOME = 400, 20
CUT_S = 60.0
BOUNDS = range(1, 4)  # The numbers of the questions about the bounds of a log.
SLOW = """
import os
import time

import drainer


class Slow(drainer.Handler):
    def handle(self, sub):
        {until}
        with open("handled", "a") as file:
            file.write(".")
"""
WAITS = "while sub.message.{at} and not os.path.exists('go'): time.sleep(0.05)"
SLEEPS = SLOW.format(until="time.sleep(0.05)")
WAITS_AFTER_SOME = SLOW.format(until=WAITS.format(at=f"offset >= {SOME}"))
EXPIRY_S = 60  # The least that a broker accepts is a minute.
RUNS = 5


@case(
    "a group has commits of a Java client with metadata beside them",
    before="exit 1: UnicodeDecodeError, a bug; or exit 3: the metadata has changed",
)
def foreign_metadata(stage: Stage) -> str:
    topic, settings = stage.name(), ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic, PARTITIONS)
    fill(settings, topic, ((None, b"x", n) for n in range(PARTITIONS) for _ in range(ENDS)))
    for run in range(RUNS):
        group = stage.name()
        texts = java_client.texts(PARTITIONS, seed=run)
        java_client.commit(stage.bootstrap, group, topic, [2] * PARTITIONS, texts)
        words = ("--topic", topic, "--group", group, "--handler", "count", "--yes")
        stage.drainer("run", *words, "-b", stage.bootstrap)
    found = java_client.read(stage.bootstrap, group, topic, PARTITIONS)
    ensure(found == dict.fromkeys(range(PARTITIONS), (ENDS, "")), f"a Java client reads {found}")
    return f"{RUNS} runs of {PARTITIONS} partitions end with 0; Java reads bare offsets"


@case(
    "the brokers drop the offsets of the empty group amid a drain",
    before="exit 4: someone else commits for this group",
)
def expired_offsets(stage: Stage) -> str:
    short = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
    with Broker(stage.folder / "broker", properties=short, die_with_parent=True) as broker:
        bootstrap = broker.bootstrap_servers
        settings, topic, group = ClientSettings.load(bootstrap), stage.name(), stage.name()
        create_topic(settings, topic)
        fill(settings, topic, ((None, b"x", 0) for _ in range(ENDS)))
        left_s = _consume(bootstrap, group, topic, 2)
        until_s = left_s + EXPIRY_S + 5
        stage.file("slow.py", SLOW.format(until=f"time.sleep(max(0, {until_s} - time.time()))"))
        words = ("--topic", topic, "--group", group, "--handler", "slow.py:Slow")
        stage.drainer("run", *words, "--tune", "timeout=0", "--yes", "-b", bootstrap)
        found = java_client.read(bootstrap, group, topic, 1)
        ensure(found == {0: (ENDS, "")}, f"the group stands at {found}")
    return "written again; exit 0"


def _consume(bootstrap: str, group: str, topic: str, offset: int) -> float:
    """Let a consumer commit as a member and leave. Return when it did."""
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    return time.time()


@case(
    "a log is cut below the frozen end, amid a drain",
    before="it hangs: the broker does not answer",
)
def cut_amid_a_drain(stage: Stage) -> str:
    with Broker(stage.folder / "broker", die_with_parent=True) as broker:
        drain = _Slow(stage, broker)
        running = drain.begin(buffer="64KiB")  # Most of the log is yet to be read when it is cut.
        cut_log(broker, drain.topic, 0, RECORDS - 20)
        ended = running.ended(CUT_S)
        running.kill()
        ensure("lost records" in ended.text, f"exit {ended.code}: {ended.text[:600]}")
        ensure(ended.code not in (0, 1), f"exit {ended.code}")
    return f"exit {ended.code}: the log lost records, it was cut"


@case(
    "a log is cut and grows again, between a kill and the resume",
    before="exit 0: new records passed over as finished by the plan",
)
def cut_between_runs(stage: Stage) -> str:
    with Broker(stage.folder / "broker", die_with_parent=True) as broker:
        drain = _Slow(stage, broker)
        running = drain.begin()
        running.kill()
        cut_log(broker, drain.topic, 0, 10)
        drain.produce(RECORDS, "new")
        drain.resume_is_refused("lost records below", EXIT_UNRESUMABLE)
    return "exit 8: records below the plan's end are others now"


@case(
    "the broker stalls at any question about the log's bounds",
    before="exit 0: Drained, with a partition skipped; or refused: the log ends at -1001",
)
def stalled_bounds(stage: Stage) -> str:
    ports = BrokerPorts.free()
    with StallingProxy.before(ports.client) as proxy:
        clients_see = {"advertised.listeners": f"PLAIN://{HOST}:{proxy.port}"}
        folder = stage.folder / "broker"
        with Broker(folder, ports=ports, properties=clients_see, die_with_parent=True) as broker:
            for number in BOUNDS:
                _drain_stalled_at(stage, proxy, broker, number)
    return f"{len(BOUNDS)} drains end with 0, each with all records done"


def _drain_stalled_at(stage: Stage, proxy: StallingProxy, broker: Broker, number: int) -> None:
    """Drain a topic while the broker stalls at this question about its bounds."""
    topic, settings = stage.name(), ClientSettings.load(broker.bootstrap_servers)
    create_topic(settings, topic)
    fill(settings, topic, ((None, b"x", 0) for _ in range(ENDS)))
    proxy.stall(topic, number)
    done = stage.drain(topic, "count", "-o", "json", "-b", f"{HOST}:{proxy.port}")
    ensure(proxy.requested >= number, f"only {proxy.requested} questions")
    ensure(done.answer["messages"]["done"] == ENDS, f"question {number}: {done.text}")


@case(
    "two containers have one host name, and a copy of the plan at the same path",
    before="the second takes the lock of the first at once, and handles",
)
def one_host_name(stage: Stage) -> str:
    """The first drain's folder is moved away under it, and a copy takes its place."""
    drain = _Slow(stage, stage.broker)
    running = drain.begin(handler=WAITS_AFTER_SOME)
    running.until(
        lambda: drain.written()["partitions"]["0"]["committed"] == SOME, "some are committed"
    )
    moved = stage.folder.with_name(f"{stage.folder.name}-moved")
    stage.folder.rename(moved)
    stage.folder.mkdir()
    for name in ("slow.py", drain.plan.name):
        shutil.copy(moved / name, stage.folder)
    drain.resume_is_refused("holds the lock")
    (moved / "go").touch()
    running.ends(0)
    shutil.rmtree(moved)
    return "exit 3: the first holds the lock, and is not disturbed"


@case(
    "the topic gets partitions between a kill and the resume",
    before="they are not reported",
)
def added_partitions(stage: Stage) -> str:
    drain = _Slow(stage, stage.broker)
    running = drain.begin()
    running.kill()
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.create_partitions([NewPartitions(drain.topic, 3)])[drain.topic].result()
    words = ("plan", "verify", drain.plan.name, "-b", stage.bootstrap)
    printed = "got partitions 1 to 2"
    for ended in (stage.drainer(*words), drain.resume()):
        ensure(printed in ended.text, ended.text[:600])
    return "plan verify, the preview and the summary report partitions 1 to 2"


class _Slow:
    """A slow drain of a log that has a batch for each record."""

    def __init__(self, stage: Stage, broker: Broker) -> None:
        self.topic = stage.name()
        self.plan = stage.folder / "slow.json"
        self._stage, self._bootstrap = stage, broker.bootstrap_servers
        create_topic(ClientSettings.load(self._bootstrap), self.topic)
        self.produce(RECORDS, "old")

    def produce(self, count: int, what: str) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "batch.num.messages": 1})
        for _ in range(count):
            producer.produce(self.topic, what.encode() * 1000, "0", 0)
        producer.flush()

    def written(self) -> dict[str, Any]:
        """The plan as it is now."""
        plan: dict[str, Any] = json.loads(self.plan.read_bytes())
        return plan

    def begin(self, buffer: str = "16MiB", *, handler: str = SLEEPS) -> Running:
        """The running command, once it has handled some; others may wait for a file ``go``."""
        stage = self._stage
        stage.file("slow.py", handler)
        more = (
            "--plan",
            "slow.json",
            "--tune",
            "timeout=0",
            "-c",
            "1",
            "--tune",
            f"buffer={buffer}",
        )
        words = stage.run_words(self.topic, "slow.py:Slow", *more, "-b", self._bootstrap)
        running = stage.start(*words)
        handled = stage.folder / "handled"
        running.until(lambda: handled.exists() and handled.stat().st_size >= SOME, "some are done")
        return running

    def resume(self, code: int = 0) -> Ended:
        words = self._stage.resume_words(self.plan.name, "-b", self._bootstrap)
        return self._stage.drainer(*words, code=code)

    def resume_is_refused(self, why: str, code: int = EXIT_REFUSED) -> None:
        ended = self.resume(code)
        ensure(why in ended.text, ended.text[:600])
