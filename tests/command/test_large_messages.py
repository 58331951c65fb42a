"""Letters of messages that are larger than their topic takes: none loses what it is about."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from confluent_kafka import Producer

from command.process import Command
from command.test_dead_letters import DEAD, default_name
from drainer.kafka.dead_letters import HEADROOM_BYTES
from kafka.topic import WAIT_S, Topic

LIMIT = 10 * 1024 * 1024
SMALL = 4000
HANDLER = """
import json
from pathlib import Path
from drainer.handler import Handler
from drainer.message import SubMessage

FIXED = Path("fixed")

class Documents(Handler):
    def split(self, message):
        if message.value.startswith(b"?") and not FIXED.exists():
            raise ValueError("not yet")
        for document in json.loads(message.value.lstrip(b"?")):
            yield SubMessage(document["id"], document)

    def handle(self, sub):
        if not FIXED.exists():
            raise ValueError("no")
        with open("done", "a") as file:
            print(sub.message.offset, sub.index, sub.key, len(sub.payload["body"]), file=file)
"""
engines = pytest.mark.parametrize(
    "where",
    [(), pytest.param(("--master", "local[2]"), marks=pytest.mark.long)],
    ids=["here", "on Spark"],
)


def documents(size: int, *names: str) -> str:
    """Documents of a message, which no compression makes smaller."""
    return json.dumps([{"id": name, "body": os.urandom(size // 2).hex()} for name in names])


def produce(command: Command, values: list[str], config: dict[str, str]) -> Topic:
    topic = command.topic(config=config)
    producer = Producer({"bootstrap.servers": topic.bootstrap, "message.max.bytes": LIMIT})
    for value in values:
        producer.produce(topic.name, value, b"customer")
    assert producer.flush(WAIT_S) == 0
    return topic


def drain(command: Command, topic: Topic, *more: str, code: int = 6) -> Any:
    handler = command.handler(HANDLER)
    words = [*command.what(topic)[:-2], "--handler", handler, "--from", "earliest", "--yes"]
    words += [*DEAD, "--tune", "on-split-failure=dead-letter", "--max-failures", "none"]
    return command("run", *words, "--tune", "max-doubt=0", *more, "-o", "json", code=code)


@engines
def test_letters_of_large_messages_are_whole(command: Command, where: tuple[str, ...]) -> None:
    values = [documents(3_000_000, f"doc-{n}") for n in range(2)]
    topic = produce(command, values, {"max.message.bytes": str(LIMIT)})
    dead = default_name(command, topic)
    outcome = drain(command, topic, *where)
    assert outcome.answer["left_out_letters"] == 0
    config = command.cluster.topic_config(dead)
    assert config["max.message.bytes"] == str(LIMIT + HEADROOM_BYTES)
    topic.delete_before(2)  # the letters are the only copies now

    (command.folder / "fixed").touch()
    words = ["-b", topic.bootstrap, "--dead-letter-topic", dead, "--yes"]
    redriven = command("redrive", *words, "--handler", command.handler(HANDLER), *where)
    assert "✓ Redriven: 2 messages, 2 sub-messages" in redriven.out
    done = (command.folder / "done").read_text().splitlines()
    assert sorted(done) == ["0 0 doc-0 3000000", "1 0 doc-1 3000000"]


@pytest.mark.long
@engines
def test_a_letter_without_its_payload_is_made_again_from_its_message(
    command: Command, where: tuple[str, ...]
) -> None:
    large = documents(6000, "a", "b", "c")
    values = [large, documents(10, "small"), f"?{large}", documents(6000, "lost")]
    week = {"retention.ms": str(7 * 24 * 60 * 60 * 1000)}
    topic = produce(command, values, week)
    dead = command.topic(config={"max.message.bytes": str(SMALL)})
    outcome = drain(command, topic, "--tune", f"dead-letter-topic={dead.name}", *where)
    assert (outcome.answer["sub_messages"]["dead"], outcome.answer["left_out_letters"]) == (6, 5)
    assert f"{topic.name} keeps them until 20" in outcome.answer["originals_kept"]
    warning = (
        f"{dead.name} takes {SMALL:,} bytes (max.message.bytes), but {topic.name} takes 1,048,588"
    )
    assert warning in outcome.err, "the preview warns"
    assert "! Drained, with 6 dead letters, 5 without payload" in outcome.err

    words = ["-b", topic.bootstrap, "--dead-letter-topic", dead.name]
    listed = command("dead", "list", *words, "-o", "json")
    assert listed.answer["left_out"] == {topic.name: 5}
    assert f"5 letters without payload: a redrive reads the messages from {topic.name}" in (
        listed.err
    )
    topic_of = [*words, "--yes", "--handler", command.handler(HANDLER), *where]
    (command.folder / "fixed").touch()
    first = command("redrive", *topic_of, "--sub-key", "b", "--sub-key", "small")
    assert "✓ Redriven" in first.out, "what was not selected is no shortcoming"
    changed = HANDLER.replace('document["id"], document', 'document["id"] + "!", document')
    (command.folder / "changed.py").write_text(changed)
    other = [*topic_of, "--handler", str(command.folder / "changed.py"), "--mixed"]
    refused = command("redrive", *other, "--sub-key", "a", "-o", "json", code=6)
    assert refused.answer["left_alone"]["split now makes other sub-messages of its original"] == 1
    topic.produce(["[]"])
    topic.delete_before(4)

    gone = command("redrive", *topic_of, "-o", "json", code=6)
    assert gone.answer["left_alone"] == {"retention or compaction deleted its original": 4}
    assert "! Redriven, but 4 letters left alone" in gone.err
    assert command("dead", "list", *words, "-o", "json").answer["outstanding"] == 4
    command("redrive", *topic_of, code=6)
    done = (command.folder / "done").read_text().splitlines()
    assert sorted(done) == ["0 1 b 6000", "1 0 small 10"]
