"""A random night with ``--no-commit`` by time: records of a window are drained again, wherever they
are."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from confluent_kafka import Message, Producer

from drainer.errors import EXIT_DONE
from scenarios.chaos.nights.account import committed, seen, traced
from scenarios.chaos.nights.lot import PARTITIONS, Lot, Record, keys, record
from scenarios.chaos.stage import Report, Stage

DAY_S, TRANSACTION = 86_400, 10


def window(stage: Stage) -> Report:
    """Write timestamps in any order, in transactions or not. The drain must handle the records of
    the window, and commit nothing."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot:
        names = keys(chance)
        made = [record(chance, names) for _ in range(400 if stage.short else 1_200)]
        base = int(time.time()) - DAY_S
        ordered, in_transactions = chance.random() < 0.5, chance.random() < 0.5
        times = [base + chance.randrange(3_600) for _ in made]
        times = sorted(times) if ordered else times
        start, end = sorted(chance.sample(range(base, base + 3_600), 2))
        places = _produce(lot, made, times, transactional=in_transactions)
        for each, at, (partition, offset) in zip(made, times, places, strict=True):
            if start <= at < end:
                for index, sub_key in enumerate(each.sub_keys or ()):
                    lot.expected[partition, offset, index] = sub_key
        lot.words_of_run = ("--from", _text(start), "--until", _text(end), "--no-commit")
        lot.takes_its_course(stage, report, EXIT_DONE)
        seen(traced(lot.trace), lot.expected).judge(report, lot.most_repeated(report))
        offsets = committed(stage.settings, lot.group, lot.topic, PARTITIONS)
        report.ensure(not offsets, f"the group is at {offsets}")
        times_are = "ordered" if ordered else "unordered"
        report.remarks.append(f"{times_are} times, transactions: {in_transactions}")
    return report


def _produce(
    lot: Lot, made: list[Record], times: list[int], *, transactional: bool
) -> list[tuple[int, int]]:
    """Produce the records, and return the partition and offset of each."""
    conf: dict[str, object] = {"bootstrap.servers": lot.settings.bootstrap_servers}
    conf |= {"transactional.id": lot.topic} if transactional else {}
    producer = Producer(conf)
    found: dict[int, tuple[int, int]] = {}

    def noting(number: int) -> Callable[[object, Message], None]:
        def note(_: object, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found[number] = partition, offset

        return note

    if transactional:
        producer.init_transactions()
    for number, (each, at) in enumerate(zip(made, times, strict=True)):
        if transactional and number % TRANSACTION == 0:
            producer.begin_transaction()
        producer.produce(
            *(lot.topic, each.value, each.key, each.partition),
            timestamp=at * 1000,
            on_delivery=noting(number),
        )
        if transactional and number % TRANSACTION == TRANSACTION - 1:
            producer.commit_transaction()
    if transactional and len(made) % TRANSACTION:
        producer.commit_transaction()
    producer.flush()
    return [found[number] for number in range(len(made))]


def _text(moment_s: int) -> str:
    return f"@{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
