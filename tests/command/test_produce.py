"""The handler ``produce``: a badly keyed topic is spread over another one, in order per sub-key."""

from __future__ import annotations

import json
import os
import random
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from command.process import Command, Running
from drainer.handlers.partitioner import PARTITIONERS
from drainer.host.java import find_java
from drainer.kafka.cluster import Cluster
from drainer.sandbox.jars import kafka_jars
from kafka.topic import Topic, eventually
from payloads.registry import Serialisers, running

HEADERS: list[tuple[str, bytes | None]] = [("trace", b"t"), ("none", None)]
DOCUMENTS = ("--split", "documents", "--key", "payload.id")
CHANCE = random.Random(3)
KEYS = [
    *(b"", b"17", "größe".encode(), b"\0", b"\xff" * 9),
    *(f"doc-{number}".encode() for number in range(2_000)),
    *(CHANCE.randbytes(CHANCE.randrange(1, 40)) for _ in range(2_000)),
]


def bundles(count: int, *, keys: int = 40) -> list[str]:
    """Values of messages: each updates five documents, with the number of that update."""
    chance = random.Random(1)
    steps = [range(5 * n, 5 * n + 5) for n in range(count)]
    each = [[{"id": f"doc-{chance.randrange(keys)}", "step": n} for n in some] for some in steps]
    return [json.dumps({"documents": documents}) for documents in each]


def begin(command: Command, topic: Topic, target: str, *more: str) -> Running:
    what = [*command.what(topic, "produce"), "--from", "earliest", "--yes"]
    return command.start("run", *what, "--set", f"topic={target}", *more)


def written(cluster: Cluster, target: Topic) -> dict[int, list[Message]]:
    """All that the target holds, by partition."""
    bounds = cluster.log_bounds(target.name, range(target.partitions), "read_uncommitted")
    return {number: target.read_all(log.end, number) for number, log in bounds.items()}


def steps_by_key(found: dict[int, list[Message]]) -> dict[bytes, list[int]]:
    steps: dict[bytes, list[int]] = {}
    for messages in found.values():
        for message in messages:
            value = json.loads(message.value() or b"")
            steps.setdefault(message.key() or b"", []).append(value["step"])
    return steps


def expected_steps(values: list[str]) -> dict[bytes, list[int]]:
    steps: dict[bytes, list[int]] = {}
    for value in values:
        for document in json.loads(value)["documents"]:
            steps.setdefault(document["id"].encode(), []).append(document["step"])
    return steps


def placed(topic: Topic, partitioner: str, keys: list[bytes]) -> list[int | None]:
    """The partitions in which a producer of librdkafka puts the records of some keys."""
    producer, found = (
        Producer({"bootstrap.servers": topic.bootstrap, "partitioner": partitioner}),
        {},
    )

    def delivered(error: Any, message: Message) -> None:
        assert error is None
        found[message.key() or b""] = message.partition()

    for key in keys:
        producer.produce(topic.name, key, key, on_delivery=delivered)
    producer.flush()
    return [found[key] for key in keys]


@pytest.mark.parametrize(
    ("partitioner", "theirs"), [("murmur2", "murmur2_random"), ("crc32", "consistent")]
)
def test_a_producer_of_librdkafka_puts_a_key_into_the_same_partition(
    command: Command, partitioner: str, theirs: str
) -> None:
    target = command.topic(partitions=7)
    assert placed(target, theirs, KEYS) == [PARTITIONERS[partitioner](key, 7) for key in KEYS]


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 7, 12])
def test_a_producer_of_java_puts_a_key_into_the_same_partition(
    command: Command, partitions: int
) -> None:
    target = command.topic(partitions=partitions)
    program = Path(__file__).with_name("KeyedProducer.java")
    classpath = os.pathsep.join(map(str, kafka_jars()))
    ended = subprocess.run(
        [find_java(), "-cp", classpath, program, target.bootstrap, target.name],
        input="".join(f"{key.hex()}\n" for key in KEYS),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert [*map(int, ended.stdout.split())] == [
        PARTITIONERS["murmur2"](key, partitions) for key in KEYS
    ]


def test_sub_messages_are_written_in_order_and_by_key(command: Command) -> None:
    values = bundles(400)
    topic, target = command.topic(values), command.topic(partitions=5)
    begun = begin(command, topic, target.name, *DOCUMENTS)
    assert f"over 5 partitions of {target.name}, by murmur2" in begun.ends(0).err
    found = written(command.cluster, target)
    assert steps_by_key(found) == expected_steps(values)
    assert all(found.values()), "each partition has some of these keys"
    there = {each.key() or b"": number for number, some in found.items() for each in some}
    assert placed(target, "murmur2_random", [*there]) == [*there.values()]
    assert command.committed(topic) == {0: 400}


@pytest.mark.long
def test_a_target_that_grows_keeps_each_sub_key_where_it_was(command: Command) -> None:
    values = bundles(400)
    topic, target = command.topic(values), command.topic(partitions=3)
    more = "--set", "partitioner=crc32"
    running = begin(command, topic, target.name, *DOCUMENTS, *more, "--rate", "500/s")
    running.prints("500/s")
    eventually(lambda: sum(map(len, written(command.cluster, target).values())) > 100)
    target.grow(8)
    running.kill()
    ended = command(*command.resume_of(command.plan(topic)))
    assert f"{target.name} has 8 partitions, but this drain writes to the first 3" in ended.err
    found = written(command.cluster, target)
    assert [partition for partition, messages in found.items() if messages] == [0, 1, 2]
    for partition, messages in found.items():
        assert {PARTITIONERS["crc32"](message.key() or b"", 3) for message in messages} <= {
            partition
        }
    for key, steps in steps_by_key(found).items():
        assert [*dict.fromkeys(steps)] == expected_steps(values)[key]


def test_a_target_that_is_not_there_is_refused_before_the_question(command: Command) -> None:
    topic = command.topic(["{}"])
    ended = begin(command, topic, "none").ends(3)
    servers = command.cluster.settings.bootstrap_servers
    assert ended.error == f"the topic none to write to does not exist at {servers}"
    assert not command.plan(topic).exists()


def test_a_record_has_its_source_in_a_header_and_keeps_headers_and_time(command: Command) -> None:
    topic, target = command.topic(), command.topic()
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    value = b'{"documents": [{"id": 17}, {"id": "a"}]}'
    producer.produce(topic.name, value, b"k", headers=list(HEADERS), timestamp=7)
    producer.flush()
    begin(command, topic, target.name, *DOCUMENTS).ends(0)
    messages = {message.key(): message for message in written(command.cluster, target)[0]}
    assert set(messages) == {b"17", b"a"}
    second = messages[b"a"]
    identity = f"{command.cluster.topic(topic.name).topic_id}:0:0:1".encode()
    added = [("drainer.topic", topic.name.encode()), ("drainer.id", identity)]
    assert second.headers() == [*HEADERS, *added]
    assert second.value() == b'{"id": "a"}'
    assert second.timestamp()[1] == 7


@pytest.mark.long
def test_a_whole_message_is_written_as_it_was_however_it_was_decoded(command: Command) -> None:
    topic, target, parts = command.topic(), command.topic(), command.topic()
    with running() as registry:
        write = Serialisers(registry.url, topic.name, in_headers=True)
        value = write.json({"id": "o-1", "docs": [{"id": "d"}]})
        topic.produce([value], headers=[*write.headers, ("other", b"1")])
        formats, split = ("--value-format", "json-schema", "--no-commit"), ("--key", "payload.id")
        begin(command, topic, target.name, *formats, *split).ends(0)
        begin(command, topic, target.name, *formats).ends(0)
        begin(command, topic, parts.name, *formats, *split, "--split", "docs").ends(0)
    wholes, (part,) = target.read_all(2), parts.read_all(1)
    assert [(each.key(), each.value()) for each in wholes] == [(b"o-1", value), (None, value)]
    assert all(set(write.headers) < set(each.headers() or ()) for each in wholes)
    assert json.loads(part.value() or b"") == {"id": "d"}
    headers: Any = part.headers()
    assert dict(headers).keys() == {"other", "drainer.topic", "drainer.id"}, "no schema's id"


@pytest.mark.long
def test_killed_again_and_again_it_loses_nothing_and_goes_back_in_order_only(
    command: Command,
) -> None:
    values = bundles(1500, keys=60)
    topic, target = command.topic(values), command.topic(partitions=3)
    more = ("-c", "40", "--rate", "4000/s")
    running = begin(command, topic, target.name, *DOCUMENTS, *more)

    def ends() -> int:
        return sum(end for end, _ in command.cluster.log_ends(target.name, range(3)).values())

    for least in (1_000, 3_000):
        eventually(lambda: ends() >= least, f"{least} are there", 30)  # noqa: B023
        running.kill()
        running = command.start(*command.resume_of(command.plan(topic)), *more)
    running.ends(0)
    steps, repeated = steps_by_key(written(command.cluster, target)), 0
    for key, wanted in expected_steps(values).items():
        # What a run wrote of a sub-key is a stretch of it in its order; the next run's begins at
        # most where that ended, and goes on to what was not there yet.
        reached = 0
        for step in steps[key]:
            place = wanted.index(step)
            assert place <= reached, f"{key!r}: step {wanted[reached]} is missing before {step}"
            repeated += place < reached
            reached = max(reached, place + 1)
        assert reached == len(wanted), f"{key!r} is not written to its end"
        back = sum(wanted.index(b) <= wanted.index(a) for a, b in pairwise(steps[key]))
        assert back <= 2, f"{key!r} went back more often than it was killed"
    assert repeated < 1_500
