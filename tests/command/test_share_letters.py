"""Letters that a broker writes of a share group, which no recording holds, are redriven."""

from __future__ import annotations

from pathlib import Path

import pytest

from command.process import Command
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from kafka.topic import Topic
from letters.foreign_letters import Record, write
from letters.libraries import SharingBroker, share_letters

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
