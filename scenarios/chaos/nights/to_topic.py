"""A random night with redrives to a topic: each letter's message must arrive, in the order of its
key."""

from __future__ import annotations

from collections import defaultdict

from confluent_kafka import Consumer, TopicPartition

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, EXIT_INTERRUPTED
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_topic
from scenarios.chaos.letters import delete_letters
from scenarios.chaos.nights.lot import PARTITIONS, Lot, Record
from scenarios.chaos.stage import KILLED, Report, Stage

ANSWER_S, LONGEST_S = 30.0, 6.0


def redrive_to_topic(stage: Stage) -> Report:
    """Let ``split`` reject all messages, and redrive their letters to a topic, with kills."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot:
        letters, target = f"{lot.topic}.dead", f"{lot.topic}.again"
        names = [b"customer-%d" % number for number in range(chance.choice([1, 30]))]
        count = 400 if stage.short else 1_500
        made = [
            Record(b"no JSON %d" % number, None, key[-1] % PARTITIONS, key)
            for number in range(count)
            for key in [chance.choice(names)]
        ]
        lot.write(made)
        report.sub_messages = count
        lot.words += (
            "--tune",
            "on-split-failure=dead-letter",
            "--tune",
            f"dead-letter-topic={letters}",
        )
        lot.words += ("--max-failures", "100%")
        lot.takes_its_course(stage, report, EXIT_DEAD_LETTERS)
        with Cluster.connect(stage.settings) as cluster:
            cluster.create_topic(target, PARTITIONS)
        kills = _redrive(stage, report, lot, letters, target)
        arrived = _read(stage.settings, target)
        wanted: dict[bytes, list[bytes]] = defaultdict(list)
        for each in made:
            wanted[each.key].append(each.value)
        late = 0
        for key, values in wanted.items():
            first: dict[bytes, None] = dict.fromkeys(arrived.get(key, []))
            report.ensure(set(first) == set(values), f"{key!r}: {len(first)} of {len(values)}")
            late += list(first) != [value for value in values if value in first]
        copies = sum(map(len, arrived.values())) - count
        report.ensure(not late, f"{late} keys out of order")
        report.ensure(copies <= kills * lot.pace.concurrency, f"{copies} copies, {kills} kills")
        report.remarks.append(f"{count} letters, {kills} kills of the redrive, {copies} copies")
        delete_letters(stage.settings, letters)
        delete_topic(stage.settings, target)
    return report


def _redrive(stage: Stage, report: Report, lot: Lot, letters: str, target: str) -> int:
    """Redrive to the end, and return how often the redrive was killed."""
    plan, kills, most = lot.plan.with_suffix(".redrive"), 0, stage.times(3, 6)
    running = ["--yes", "--concurrency", str(lot.pace.concurrency), "--rate", "300/s"]
    begin = ["redrive", "--dead-letter-topic", letters, "--to", target, "--plan", str(plan)]
    while True:
        process = lot.command(
            "--quiet", *(["resume", str(plan)] if plan.exists() else begin), *running
        )
        if kills < most and not process.ends_within(stage.chance.uniform(0.5, LONGEST_S)):
            process.kill()
            kills, report.times = kills + 1, report.times + 1
        if report.ends(process, KILLED, EXIT_DONE, EXIT_INTERRUPTED) != KILLED:
            return kills


def _read(settings: ClientSettings, topic: str) -> dict[bytes, list[bytes]]:
    """Return the values of a topic by key, in their order."""
    conf = {"bootstrap.servers": settings.bootstrap_servers, "group.id": f"{topic}.reader"}
    consumer = Consumer(conf | {"enable.auto.commit": False, "auto.offset.reset": "error"})
    found: dict[bytes, list[bytes]] = defaultdict(list)
    try:
        for number in range(PARTITIONS):
            place = TopicPartition(topic, number, 0)
            end = consumer.get_watermark_offsets(place, ANSWER_S)[1]
            consumer.assign([place])
            for _ in range(end):
                [message] = consumer.consume(1, ANSWER_S)
                assert message.error() is None, message.error()
                found[message.key() or b""].append(message.value() or b"")
    finally:
        consumer.close()
    return found
