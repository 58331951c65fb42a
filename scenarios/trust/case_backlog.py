"""The backlog: times on compacted topics, retention, partial commits, open transactions, rates."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.trust.case import Stage, case, ensure, wait_until

WAIT_S = 30.0
NOON_MS = 1_772_366_400_000
MESSAGES, KEPT = 4_000, 100
HANDLER = """
import asyncio, drainer

class Slow(drainer.Handler):
    async def handle(self, sub):
        await asyncio.sleep(0.005)
        with open("handled", "a") as file:
            file.write(f"{sub.message.offset}\\n")
"""


def _topic(
    bootstrap: str, name: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, partitions, 1, config=config or {})
    admin.create_topics([new])[name].result(WAIT_S)


def _produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[str, int]],
    *,
    value: bytes = b"v",
    partitions: int = 1,
) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for key, at_ms in records:
        for partition in range(partitions):
            producer.produce(topic, value, key, partition=partition, timestamp=at_ms)
    ensure(producer.flush(WAIT_S) == 0, "the records were not produced")


def _now(count: int) -> list[tuple[str, int]]:
    now_ms = round(time.time() * 1000)
    return [(f"k{number}", now_ms) for number in range(count)]


@case(
    9,
    "--from and --until with a time, on a compacted topic",
    before="--from @T: nothing drained, exit 0; --until @T: all drained and committed",
)
def times_on_a_compacted_topic(stage: Stage) -> str:
    properties = {"log.cleaner.backoff.ms": "200"}
    with Broker(stage.folder / "own", properties=properties, die_with_parent=True) as broker:
        bootstrap, topic = broker.bootstrap_servers, stage.name()
        policy = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.0",
        }
        _topic(bootstrap, topic, config=policy)

        def put(key: str, minute: int, count: int = 1, value: bytes = b"v") -> None:
            at_ms = NOON_MS + minute * 60_000
            names = [f"{key}{number}" for number in range(count)]
            _produce(bootstrap, topic, [(name, at_ms) for name in names], value=value)

        large = b"v" * 100_000  # so that segments stay apart when they are cleaned
        put("early", 9, 6, large)
        put("hot", 10)  # offset 6, to be compacted away; the index keeps its time
        time.sleep(0.15)
        put("late", 11, 6, large)
        put("hot", 20)
        time.sleep(0.15)
        put("active", 30)
        with Cluster.connect(ClientSettings.load(bootstrap), 60) as cluster:
            at_ms = NOON_MS + 10 * 60_000
            wait_until(
                lambda: cluster.offset_at(topic, [0], at_ms)[0] is None,
                "the broker names no record of minute 10 or later",
            )
        at = f"@{datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()}"
        what = ["-b", bootstrap, "--topic", topic, "--handler", "count", "--yes", "--group", "a"]
        for options in (["--from", at], ["--from", "earliest", "--until", at]):
            done = stage.drainer("run", *what, *options, code=3)
            ensure("compacted" in done.err, "it does not say why")
    return "refused: brokers name wrong offsets for times on a compacted topic"


@case(
    10,
    "retention overtakes a running drain",
    before="what was read ahead is handled by nobody; the plan is refused for good",
)
def retention_overtakes_a_drain(stage: Stage) -> str:
    topic = stage.name()
    _topic(stage.bootstrap, topic)
    _produce(stage.bootstrap, topic, _now(MESSAGES), value=b"v" * 1000)
    handler = f"{stage.file('slow.py', HANDLER)}:Slow"
    how = ("--buffer", "1MiB", "-c", "4", "--plan", "p", "-o", "json")
    handled = stage.folder / "handled"
    with stage.running(*stage.run_words(topic, handler, *how)) as running:
        running.until(lambda: handled.exists() and len(handled.read_text().split()) > 50, "work")
        place = TopicPartition(topic, 0, MESSAGES - KEPT)
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.delete_records([place])[place].result(WAIT_S)
        ended = running.ends(4)
    watermark = ended.answer["partitions"]["0"]["watermark"]
    ensure(f"offsets {watermark} to " in ended.err, "it does not print where the gap begins")
    done = {int(offset) for offset in handled.read_text().split()}
    ensure(done == set(range(watermark)), f"{watermark - len(done)} of what was read is lost")
    ensure("--accept-gap" in ended.err, "it does not print how to resume")
    stage.drainer("resume", "p", "--yes", code=3)
    ensure("retention deleted" in stage.drainer("plan", "verify", "p", code=None).text, "unnoticed")
    answer = stage.drainer("resume", "p", "--accept-gap", "--yes", "-o", "json", code=6).answer
    lost = answer["partitions"]["0"]["lost"]
    ensure(lost == [[watermark, MESSAGES - KEPT]], f"lost: {lost}")
    ensure(answer["messages"]["done"] == watermark + KEPT, f"{answer['messages']}")
    return f"all {watermark} that were read are handled; {MESSAGES - KEPT - watermark} lost by name"


@case(
    11,
    "a group with commits on 100 of 200 partitions",
    before="committed and earliest both refused; inspect and estimate, too",
)
def a_group_with_partial_commits(stage: Stage) -> str:
    topic, partitions = stage.name(), 200
    _topic(stage.bootstrap, topic, partitions)
    _produce(stage.bootstrap, topic, _now(2), partitions=partitions)
    with Cluster.connect(ClientSettings.load(stage.bootstrap), 60) as cluster:
        for group in ("earliest", "end"):
            cluster.alter_committed(f"{topic}-{group}", topic, dict.fromkeys(range(100), 1))
    what = ["-b", stage.bootstrap, "--topic", topic, "--handler", "count"]
    its = ["--group", f"{topic}-earliest"]
    refused = stage.drainer("run", *what, *its, "--yes", code=3)
    ensure(len(refused.err) < 600, f"{len(refused.err)} characters of partitions")
    looked = stage.drainer("inspect", *what, *its, "-o", "json").answer
    ensure("100 of 200 partitions" in looked["remarks"][0], f"inspect says {looked['remarks']}")
    stage.drainer("estimate", *what, *its, "--latency", "1ms", "-o", "json")
    counts = []
    for otherwise in ("earliest", "end"):
        options = ["--group", f"{topic}-{otherwise}", "--from", f"committed-or-{otherwise}"]
        answer = stage.drainer("run", *what, *options, "--yes", "-o", "json").answer
        counts.append(answer["messages"]["done"])
    ensure(counts == [300, 100], f"drained {counts}")
    return "committed-or-earliest drained 300, committed-or-end 100; inspect and estimate look"


@case(
    12,
    "50 offsets behind a hanging transaction",
    before="neither in inspect nor in the summary of a drained run",
)
def a_hanging_transaction(stage: Stage) -> str:
    topic = stage.name()
    _topic(stage.bootstrap, topic)
    _produce(stage.bootstrap, topic, _now(5))
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(WAIT_S)
    _produce(stage.bootstrap, topic, _now(49))
    what = ["-b", stage.bootstrap, "--topic", topic, "--group", "g", "--from", "earliest"]
    looked = stage.drainer("inspect", *what, "-o", "json")
    drained = stage.drain(topic, "count", "-o", "json", group="g")
    again = stage.drain(topic, "count", "--from", "committed", group="g")
    producer.abort_transaction(WAIT_S)
    for done in (looked, drained):
        held = done.answer["held"][0]
        ensure(held.get("offsets") == 50, f"held back: {held}")
        ensure(held["offset"] == 5, f"held back: {held}")
    ensure("holds back 50 offsets" in looked.err, "inspect does not say it")
    ensure("held back" in again.out, "the summary does not say it")
    return "both say that 50 offsets are held back from offset 5 on, and since when"


@case(
    15,
    "the rate of arrivals",
    before="'offsets/s now' for what arrived in five minutes",
)
def arrivals_are_named_by_their_window(stage: Stage) -> str:
    topic = stage.name()
    _topic(stage.bootstrap, topic)
    _produce(stage.bootstrap, topic, _now(300))
    what = ["-b", stage.bootstrap, "--topic", topic, "--group", "g", "--from", "earliest"]
    said = stage.drainer("inspect", *what).out
    arrivals = next((line for line in said.splitlines() if "arrivals" in line), "")
    ensure("over the last 5m" in arrivals, f"it says {arrivals.strip()!r}")
    return " ".join(arrivals.split())
