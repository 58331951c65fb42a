"""Letters that the real libraries write today are those that were recorded, and are redriven."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from command.process import Command
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from drainer.sandbox.ports import free_port
from kafka.topic import Topic
from letters.foreign_letters import Record, recorded, write
from letters.libraries import (
    SharingBroker,
    connect_letters,
    share_letters,
    smallrye_letters,
    spring_letters,
    streams_letters,
    without_traces,
)

pytestmark = pytest.mark.long
HANDLER = """
import drainer

class Note(drainer.Handler):
    def open(self, context):
        self.path = context.options["done"]

    def handle(self, sub):
        with open(self.path, "a") as file:
            print(sub.id, sub.payload, file=file)
"""
NAMES = {
    "spring": "orders.DLT",
    "streams": "streams.dlq",
    "connect": "connect.dlq",
    "smallrye": "orders.dead",
}
SOURCES = {"streams": "sin", "connect": "csrc"}


@contextmanager
def topic(command: Command, name: str) -> Iterator[Topic]:
    made = Topic(command.bootstrap, name)
    try:
        yield made
    finally:
        made.delete()


@pytest.mark.parametrize("tool", NAMES)
def test_what_a_library_writes_is_as_recorded_and_is_redriven(
    command: Command, tmp_path: Path, tool: str
) -> None:
    expected = recorded(tool)
    with ExitStack() as topics:
        letters = topics.enter_context(topic(command, NAMES[tool]))
        if tool in SOURCES:
            source = topics.enter_context(topic(command, SOURCES[tool]))
            own = [(each, [h for h in each.headers if h[0] == "trace"]) for each in expected]
            write(source, [Record(each.key, each.value, 0, headers) for each, headers in own])
        match tool:
            case "spring":
                spring_letters(command.bootstrap, letters)
            case "smallrye":
                smallrye_letters(command.bootstrap, letters)
            case "streams":
                streams_letters(command.bootstrap, letters, tmp_path)
            case "connect":
                connect_letters(command.bootstrap, letters, tmp_path, free_port())
        written = [
            Record(each.key, each.value, 0, list(each.headers))
            for each in read_letters(command.cluster, letters.name)
        ]
        assert without_traces(written) == without_traces(expected)

        where = ["-b", command.bootstrap, "--dead-letter-topic", letters.name]
        listed = command("dead", "list", *where, "-o", "json").answer
        assert listed["by_reason"] == {tool: 2}
        handler, done = command.handler(HANDLER), tmp_path / "done"
        command("redrive", *where, "--handler", handler, "--set", f"done={done}", "--yes")
        handled = [line.partition(" ")[2] for line in done.read_text().splitlines()]
        assert len(handled) == len(expected)
        for key in {each.key for each in expected}:
            of_key = [str(each.value) for each in expected if each.key == key]
            assert [each for each in handled if each in of_key] == of_key
        assert command("dead", "list", *where, "-o", "json").answer["outstanding"] == 0


def test_what_a_broker_writes_of_a_share_group_is_redriven_with_its_messages(
    command: Command, tmp_path: Path
) -> None:
    config = {"errors.deadletterqueue.group.enable": "true"}
    written = [Record(b"k", b'{"id":1}', 1, [("trace", b"t")]), Record(b"k", b"two", 2, [])]
    handler = command.handler(HANDLER)
    with SharingBroker(tmp_path / "broker", die_with_parent=True) as broker:
        source = Topic(broker.bootstrap_servers, "orders")
        write(source, written)
        for group, copy in (("copying", "true"), ("naming", "false")):
            letters = Topic(broker.bootstrap_servers, f"dlq.{group}", config=config)
            share_letters(broker.bootstrap_servers, source, group, letters, copy)
            with Cluster.connect(ClientSettings.load(broker.bootstrap_servers)) as cluster:
                found = list(read_letters(cluster, letters.name))
            for offset, (letter, record) in enumerate(zip(found, written, strict=True)):
                place = {"topic": "orders", "partition": 0, "offset": offset, "group": group}
                of_end = {"delivery.count": 1, "message": "Offset rejected by client."}
                assert list(letter.headers) == [  # it copies none of the message's
                    (f"__dlq.errors.{name}", str(value).encode())
                    for name, value in (place | of_end).items()
                ]
                copied = (record.key, record.value) if copy == "true" else (None, None)
                assert (letter.key, letter.value) == copied

            where = ["-b", broker.bootstrap_servers, "--dead-letter-topic", letters.name]
            listed = command("dead", "list", *where, "-o", "json").answer
            assert listed["by_reason"] == {"share": 2}
            done = tmp_path / group
            command("redrive", *where, "--handler", handler, "--set", f"done={done}", "--yes")
            expected = [f"orders:0:{n}:0 {record.value!r}" for n, record in enumerate(written)]
            assert done.read_text().splitlines() == expected
            assert command("dead", "list", *where, "-o", "json").answer["outstanding"] == 0
