"""Cases of dead letters: what others write among them, and whose they are."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Producer

from drainer.errors import DrainerError
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import DeadLetterTopic
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from drainer.letters.receipts import Receipt
from drainer.model.codec import encode
from drainer.model.formats import RECEIPT
from drainer.policy.dead_letter import (
    HEADER,
    DeadLetter,
    default_dead_letter_topic,
)
from scenarios.fill import create_topic
from scenarios.trust.case import TRY_S, Ended, Stage, case, ensure

NEW_TOPICS, NEW_PARTITIONS = 40, 48
FOREIGN_TOPICS = 1_001
TOPIC_TAKES = 1_048_588  # The bytes of a record that a topic takes by default.

HANDLER = """
from pathlib import Path

async def handle(sub):
    if sub.key == b"bad" and not Path("fixed").exists():
        raise ValueError("no")
    with open("handled", "a") as file:
        file.write(f"{sub.message.topic} {sub.message.offset}\\n")
"""


def produce(
    stage: Stage, topic: str, *records: tuple[bytes, Sequence[Any]], value: bytes | None = b"{}"
) -> None:
    producer = Producer(
        {"bootstrap.servers": stage.bootstrap, "message.max.bytes": 2 * TOPIC_TAKES}
    )
    for key, headers in records:
        producer.produce(topic, value, key, headers=list(headers))
    producer.flush(30)


def dead_letters(stage: Stage, group: str) -> str:
    """Drain a topic whose messages all become dead letters, and return its dead-letter topic."""
    handler = stage.file("handler.py", HANDLER)
    topic = stage.topic()
    produce(stage, topic, (b"bad", []))
    dead = default_dead_letter_topic(topic, group)
    policy = ("--retries", "0", "--max-failures", "none", "--tune", "breaker=off")
    stage.drain(topic, handler, *policy, "--tune", f"dead-letter-topic={dead}", group=group, code=6)
    return dead


def listed(stage: Stage, dead: str) -> dict[str, Any]:
    where = ("--dead-letter-topic", dead, "-b", stage.bootstrap)
    answer: dict[str, Any] = stage.drainer("dead", "list", *where, "-o", "json").answer
    return answer


def redrive(stage: Stage, dead: str, *words: str, code: int | None = 0) -> Ended:
    where = ("--dead-letter-topic", dead, "-b", stage.bootstrap, "--yes")
    return stage.drainer("redrive", *where, "--handler", "handler.py", *words, code=code)


def forge(stage: Stage, dead: str, *changes: dict[str, Any], value: bytes = b"{}") -> KafkaMessage:
    """Write copies of the first letter with something else in their provenance, and return the
    letter."""
    with stage.cluster() as cluster:
        letter = next(iter(read_letters(cluster, dead)))
    (name, provenance), *headers = letter.headers
    known = json.loads(provenance or b"")
    for each in changes:
        ensure(
            set(each) <= {*known, "sub_key_exact", "payload_encoding"},
            f"a letter has {sorted(known)}",
        )
        header = (name, json.dumps(known | each).encode())
        produce(stage, dead, (b"bad", [header, *headers]), value=value)
    return letter


def handled(stage: Stage) -> list[str]:
    file = Path(stage.folder / "handled")
    return file.read_text().splitlines() if file.exists() else []


@case(
    "hostile letters among good ones",
    before="a header of 5,000 digits ended `dead list` (exit 1) and halted each redrive (exit 5);"
    " an offset of 200 nines ended `dead list -o json`; redrives of -5 were taken",
)
def hostile_letters(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    answer = listed(stage, dead)
    ensure(answer["letters"] == 1, f"{answer['letters']} letters instead of 1")
    digits = int("9" * 200)
    forge(
        stage,
        dead,
        {"message_headers": digits},
        {"redrives": -5},
        {"message_offset": digits},
        {"several": True, "sub_key": "()"},
    )
    produce(stage, dead, (b"bad", []))
    answer = listed(stage, dead)
    ensure((answer["letters"], answer["foreign"]) == (1, 5), f"the list has {answer}")
    (stage.folder / "fixed").touch()
    redrive(stage, dead)
    ensure(len(handled(stage)) == 1, f"handled {handled(stage)}")
    return "1 letter listed and redriven, 5 records counted as foreign and left alone"


@case(
    "letters that a stranger made up among a drain's own",
    before="one of another group, and each redrive was refused; one with the sub-key 1.5, and each"
    " redrive after the first was; one of 1 MB died again, and halted each redrive",
)
def forged_letters(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    letter = forge(
        stage,
        dead,
        {"group": "billing"},
        {"handler": "evil.py:Evil"},
        {"sub_key": "1.5"},
        {"sub_key": repr(b"bad" * 100_000)},
        {"payload_encoding": "literal"},
    )
    name, provenance = letter.headers[0]
    full = json.dumps(json.loads(provenance or b"") | {"message_headers": 1}).encode()
    padding = bytes(TOPIC_TAKES - len(full) - 300)
    produce(stage, dead, (b"bad", [(name, full), ("padding", padding)]))
    redrive(
        stage, dead, "--max-failures", "none", "--tune", "breaker=off", "--retries", "0", code=6
    )
    (stage.folder / "fixed").touch()
    text = redrive(stage, dead).text
    ensure("left alone: 2 letters of other drains" in text, text)
    ensure(handled(stage), "the real letter was not handled")
    return "the drain's own letter dies again, then is handled; the rest are skipped or left alone"


@case(
    "letters on topics that were just created",
    before="5 to 8 of 5,760 acknowledged letters were not in the log: librdkafka acknowledged them"
    " without an offset",
)
def letters_of_new_topics(stage: Stage) -> str:
    settings = ClientSettings.load(stage.bootstrap)
    letters = there = 0
    for _ in range(NEW_TOPICS):
        topic = stage.name()
        create_topic(settings, topic, NEW_PARTITIONS)
        printed = SimpleQueue[DrainerError | None]()
        writer = DeadLetterTopic(settings, topic)
        for number in range(3 * NEW_PARTITIONS):
            provenance = HEADER, b"%d" % number
            writer.send(DeadLetter(b"key-%d" % number, b"{}", (provenance,)), printed.put)
        answers = [printed.get(timeout=TRY_S) for _ in range(3 * NEW_PARTITIONS)]
        writer.close(0)
        ensure(set(answers) == {None}, f"a letter was not written: {set(answers)}")
        letters += len(answers)
        with Cluster.connect(settings) as cluster:
            bounds = cluster.log_bounds(topic, range(NEW_PARTITIONS), "read_uncommitted")
            there += sum(log.end for log in bounds.values())
            cluster.delete_topic(topic)
    ensure(there == letters, f"{letters:,} letters were acknowledged, {there:,} are there")
    return f"{letters:,} letters acknowledged, and all of them are there"


@case(
    "1,001 letters of as many made-up topics, which --source excludes",
    before="each name was looked up, by a connection of its own: no end in 100 s",
)
def foreign_topics(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    (stage.folder / "fixed").touch()
    records = []
    for number in range(FOREIGN_TOPICS):
        place = {"topic": f"made-up-{number}", "partition": "0", "offset": "7"}
        headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in place.items()]
        records.append((b"bad", headers))
    produce(stage, dead, *records, value=None)
    source = dead.removesuffix(".indexer.dead")
    began = time.monotonic()
    redrive(stage, dead, "--source", source)
    took_s = time.monotonic() - began
    ensure(len(handled(stage)) == 1, f"handled {handled(stage)}")
    ensure(took_s < TRY_S, f"it took {took_s:.0f} s")
    return "the selected letter is redriven, and no other topic is looked up"


@case(
    "a receipt of a redrive that never ran",
    before="each redrive was refused, and the hint offered to resume the plan that it named",
)
def forged_open_receipt(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    (stage.folder / "fixed").touch()
    with stage.cluster() as cluster:
        topic_id = cluster.topic(dead).topic_id
    theirs = str(stage.folder / "evil.plan.json")
    ids = (f"drainer.redrive.{dead}", topic_id, "forged", socket.gethostname(), theirs)
    for end in (1, 10**15):
        receipt = Receipt(*ids, end, ended=False)
        produce(stage, dead, (b"", [(str(RECEIPT), encode(receipt.as_json()))]))
    refused = redrive(stage, dead, "-o", "json", code=3)
    hint = refused.answer["hint"]
    ensure(theirs not in hint and "--accept-repeats" in hint, hint)
    redrive(stage, dead, "--accept-repeats")
    ensure(len(handled(stage)) == 1, f"handled {handled(stage)}")
    redrive(stage, dead)
    return "its plan is not offered; after one redrive with --accept-repeats it counts no more"
