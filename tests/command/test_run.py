"""A drain from end to end: everything is handled once and in order, and the account says so."""

from __future__ import annotations

import json
import random

from confluent_kafka import Producer

from command.process import ON_THREADS, Command
from command.record import every_place


def account(done: int, pending: int = 0) -> dict[str, int]:
    return {
        "read": done + pending,
        "done": done,
        "dead": 0,
        "failed": 0,
        "skipped": 0,
        "pending": pending,
        "unsplit": 0,
    }


def test_all_is_handled_once_and_in_order_with_several_sub_keys_and_barriers(
    command: Command,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    values = [
        json.dumps(
            [
                chance.choice([f"k{chance.randrange(5)}", ["k0", f"k{chance.randrange(5)}"]])
                for _ in range(chance.randrange(4))
            ]
            + [None] * (chance.random() < 0.05)
        )
        for _ in range(300)
    ]
    topic = command.topic(values, partitions=2)
    outcome = command.drain(topic, handler=ON_THREADS, pause_ms=1)
    assert sorted(command.record.done()) == sorted(every_place(values) | every_place(values, 1))
    command.record.check_order()
    assert command.record.most_at_once() > 1
    assert command.committed(topic) == {0: 300, 1: 300}
    action, _, rest = outcome.err.partition("draining ")
    for shown in ("[0, 300)", "no offset", "does not exist yet", command.group(topic), "plan undo"):
        assert shown in action
    assert rest, "how far it was"
    assert "Drained: 600 messages" in outcome.out
    assert outcome.out.count("adds up") == 2
    assert command.left_behind == [command.plan(topic).name]
    assert command.plan(topic).stat().st_mode & 0o777 == 0o600


def test_a_handler_sees_all_of_a_message(command: Command) -> None:
    handlers = command.home / "seer.py"
    handlers.write_text(
        "def handle(sub):\n"
        "    m = sub.message\n"
        "    print([m.topic, m.partition, m.offset, m.key, m.value, m.timestamp,\n"
        "           [tuple(h) for h in m.headers], sub.index, sub.attempt, sub.id])\n"
    )
    topic = command.topic(partitions=2)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b"2"), ("n", None)]
    producer.produce(topic.name, b"\xff\x00", b"key", 1, timestamp=1700000000123, headers=headers)
    producer.produce(topic.name, None, None, 1, timestamp=1700000000124)
    assert producer.flush(15) == 0
    first, second, *_ = command.drain(topic, "-c", "1", handler=str(handlers)).out.splitlines()
    topic_id = json.loads(command.plan(topic).read_text())["topic_id"]
    place = f"{topic.name!r}, 1"
    assert first == (
        rf"[{place}, 0, b'key', b'\xff\x00', 1700000000123,"
        rf" [('a', b'1'), ('a', b'2'), ('n', None)], 0, 1, '{topic_id}:1:0:0']"
    )
    assert second == f"[{place}, 1, None, None, 1700000000124, [], 0, 1, '{topic_id}:1:1:0']"
