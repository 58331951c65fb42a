"""A writer to a dead-letter topic can do nothing to the redrive of real letters, and no made-up
letter of another tool is finished without a call."""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.letters import Sample, as_record, mutated_letters
from drainer.errors import NotADeadLetter
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import KafkaMessage
from drainer.letters.cli.dead import letter_page
from drainer.letters.foreign import REDRIVES, SCHEMES
from drainer.letters.originals import Originals
from drainer.letters.overview import overview_of, whole_letter_as_json
from drainer.letters.reading import find_letter, read_letters
from drainer.letters.receipts import RECEIPT_BYTES_MOST, read_receipt, redrive_progress
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model import codec
from drainer.model.formats import RECEIPT
from drainer.model.settings import FailureSettings, Limit, LocalSettings, OnFailure
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.operations.drain import drain
from drainer.operations.start import Prepared, Request
from drainer.policy.dead_letter import (
    HEADER,
    OWN_HEADERS,
    DeadLetter,
    default_dead_letter_topic,
    read_letter,
)
from kafka.raw import produce_with_header
from kafka.topic import Topic
from letters.foreign_letters import Record, write

HANDLER = """
handled = []

def split(message):
    import json, drainer
    return [drainer.SubMessage(key) for key in json.loads(message.value)]

async def handle(sub):
    if sub.payload != "of a drain":
        raise ValueError("forged " * 140)
    handled.append(sub.message.offset)
"""
FAILURES = FailureSettings(
    on_failure=OnFailure.DEAD_LETTER, retries=0, max_failures=Limit(), breaker=False, max_doubt_s=0
)
RECORD_BYTES = 1_048_588  # that a topic takes


def prepared(
    cluster: Cluster, topic: str, handler: str, plan: Path, *, mixed: bool = False
) -> Prepared:
    (plan.parent / "handler.py").write_text(handler)
    request = Request(
        topic=topic,
        group=default_group(topic),
        handler=load_handler(str(plan.parent / "handler.py")),
        failures=FAILURES,
        plan_path=plan,
    )
    return prepare_redrive(cluster, request, RedriveSettings(), LocalSettings(), mixed=mixed)


class Forged:
    """The dead-letter topic of a drain, in which a real letter lies among records of a stranger."""

    def __init__(self, cluster: Cluster, bootstrap: str, source: str, folder: Path) -> None:
        self.cluster, self.source, self.folder = cluster, source, folder
        self.topic = Topic(bootstrap, default_dead_letter_topic(source, "g"))
        (folder / "handler.py").write_text(HANDLER)
        self.reference = load_handler(str(folder / "handler.py")).absolute_reference
        self.died = 0

    def letter(self, payload: Any = "of a drain") -> DeadLetter:
        sub = SubMessage("doc", payload)
        sub.message = Message(Origin(self.source, "an-id", 0), self.died, b"k", b"v", 1, ())
        sub.index = 0
        return Sample(topic=self.source, group="g", handler=self.reference, sub=sub).letter()

    def forge(self, **fields: object) -> Message:
        """A letter of the drain but for a few fields of its provenance."""
        letter = self.letter()
        printed = orjson.loads(letter.headers[0][1] or b"") | fields
        return Message(
            Origin("", "", 0), 0, letter.key, letter.value, 1, [(HEADER, orjson.dumps(printed))]
        )

    def write(self, records: Sequence[Message]) -> None:
        """Forged letters, and a real one behind them."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.topic.bootstrap, "message.max.bytes": 2 * RECORD_BYTES}
        )
        real = as_record(self.letter())
        self.died += 1
        for record in [*records, real]:
            headers: Any = list(record.headers)
            producer.produce(self.topic.name, record.value, record.key, headers=headers)
        assert producer.flush(30) == 0

    def prepared(self, plan: str) -> Prepared:
        return prepared(self.cluster, self.topic.name, HANDLER, self.folder / plan)

    def redrive(self, plan: str = "plan.json") -> list[int]:
        """The offsets of the real letters that the handler got."""
        redrive = self.prepared(plan)
        done = drain(self.cluster, redrive, LocalSettings())
        assert done.exit_code in (0, 6)
        assert done.conserved
        handled: list[int] = redrive.handler.target.handled
        return handled


@pytest.fixture
def forged(cluster: Cluster, bootstrap: str, topic_name: str, tmp_path: Path) -> Iterator[Forged]:
    cluster.group(default_group(topic_name))  # waits for its coordinator
    made = Forged(cluster, bootstrap, topic_name, tmp_path)
    yield made
    made.topic.discard()


def test_no_made_up_record_stops_a_redrive_or_hides_a_letter(forged: Forged) -> None:
    @settings(max_examples=2, deadline=None)
    @given(st.lists(mutated_letters(), min_size=1, max_size=40))
    def check(records: list[Message]) -> None:
        forged.write(records)
        assert forged.died - 1 in forged.redrive()

    check()


@pytest.mark.long
def test_letters_with_made_up_fields_are_passed_over(forged: Forged) -> None:
    made_up: list[dict[str, object]] = [
        {"sub_key": "1.5"},
        {"sub_key": "True"},
        {"sub_key": "frozenset()"},
        {"sub_key": repr("k" * 100_000)},
        {"topic": "t" * 100_000},
        {"payload_encoding": "literal"},
        {"redrives": 2**63 - 1},
        {"attempts": 2**63 - 1},
        {"timestamp": 2**63 - 1},
        {"kind": "barrier", "several": True, "sub_key": "('a', 'b')"},
        {"kind": "message", "whole": True},
    ]
    forged.write([forged.forge(**fields) for fields in made_up])
    assert set(forged.redrive()) == {0}
    forged.write([])
    assert forged.redrive()[-1] == 1, "nor does what became of it stop the next"


def test_letters_of_made_up_drains_are_left_alone(forged: Forged) -> None:
    others: list[dict[str, object]] = [{"group": f"g-{n}"} for n in range(150)]
    others += [{"topic": "t"}, {"handler": "evil.py:Evil"}]
    forged.write([forged.forge(**each) for each in others])

    warnings = forged.prepared("look.json").action.warnings
    assert [each for each in warnings if each == "left alone: 152 letters of other drains"]
    assert forged.redrive() == [0]


@pytest.mark.long
def test_a_letter_that_takes_all_a_topic_takes_can_die_again(forged: Forged) -> None:
    """A letter that dies again grows by its history."""
    fields = {"message_headers": 1, "payload_encoding": "null"}
    ((_, printed),) = forged.forge(**fields).headers
    room = RECORD_BYTES - len(printed or b"") - 400
    headers = [(HEADER, printed), ("h", os.urandom(room))]
    key = base64.b64encode(os.urandom(room // 4 * 3)).decode()
    keyed = forged.forge(payload_encoding="null", message_key=key).headers
    forged.write([Message(Origin("", "", 0), 0, None, None, 1, each) for each in (headers, keyed)])

    assert forged.redrive() == [0]
    again = 0
    for message in read_letters(forged.cluster, forged.topic.name):
        with suppress(NotADeadLetter):
            again += read_letter(message).redrives == 1
    assert again == 2


def test_a_receipt_that_is_larger_than_any_is_none() -> None:
    output = {"group": "g", "topic_id": "t", "drain_id": "d", "host": "h", "plan": "/p", "end": 9}
    body = output | {"ended": True, "finished": "1 " * RECEIPT_BYTES_MOST}
    header = (str(RECEIPT), codec.encode(body))
    assert read_receipt(Message(Origin("d", "t", 0), 7, None, None, 1, [header])) is None


RECORDS = 250
KEPT = range(20, 60)  # offsets of the source that retention left
GONE = "retention or compaction deleted its original"
ANY_VALUE = """
handled = []

async def handle(sub):
    handled.append(sub.message.key)
    if sub.payload == b"bad":
        raise ValueError("no")
"""


class Forger:
    """Makes letters with headers that are missing, repeated, cut or of another type."""

    def __init__(self, random: Random, source: Topic, dead: Topic) -> None:
        self._random = random
        self._topics = [source.name] * 12 + [dead.name, "missing", "", "..", "a b", "t" * 300, "ä"]

    def record(self, number: int) -> Record:
        choose, scheme = self._random.choice, self._random.choice(SCHEMES)
        names = [scheme.topic, scheme.partition, scheme.offset, scheme.group, scheme.text]
        headers = [
            (name, self._value(name)) for name in names if name and self._random.random() > 0.05
        ]
        headers += [
            (choose(names), self._value(choose(names))) for _ in range(choose([0, 0, 0, 2]))
        ]
        extra = [
            (REDRIVES, choose([b"1", b"9", b"", b"-1", b"\xff" * 8])),
            (HEADER, b"{"),
            ("a", None),
        ]
        headers += [each for each in extra if self._random.random() < 0.05]
        if self._random.random() < 0.1:
            self._random.shuffle(headers)
        value = choose([None, None, b"", b"bad", b"good", b"\xff\x00"])
        lacks_message = scheme.leaves_out and self._random.random() < 0.8
        value = None if lacks_message else value
        return Record(
            None if lacks_message else b"n%d" % number, value, 0, [*filter(lambda h: h[0], headers)]
        )

    def _value(self, name: str) -> bytes | None:
        choose = self._random.choice
        if name.endswith("topic"):
            return choose(self._topics).encode()
        if name.endswith(("group", "text", "message", "reason")):
            return choose([b"g", b"", None, b"\x1b[2J\xff", b"x" * 5000])
        size = 4 if name.endswith("partition") else 8
        number = 0 if size == 4 else choose([3, 30, 45, 5000])
        written = str(number).encode(), number.to_bytes(size, "big")
        odd = [
            None,
            b"",
            b"-1",
            b"9" * 25,
            b"\xff" * size,
            number.to_bytes(size, "big")[1:],
            b"1.5",
        ]
        return choose(written) if self._random.random() > 0.15 else choose(odd)


@pytest.fixture
def topics(bootstrap: str, topic_name: str) -> Iterator[tuple[Topic, Topic]]:
    made = Topic(bootstrap, f"{topic_name}.source"), Topic(bootstrap, f"{topic_name}.dead")
    yield made
    for each in made:
        each.discard()


def ensure_shown(cluster: Cluster, topic: str, records: list[KafkaMessage]) -> None:
    """Each record is counted, and each letter among the first has a page."""
    originals = Originals(cluster.settings, {})
    found = overview_of(
        topic, ((each, False) for each in records), LetterFilter(), 1000, read=originals.letter
    )
    assert found.letters + found.foreign == len(records)
    for each in records[:20]:
        try:
            letter = find_letter(cluster, topic, 0, each.offset, originals.letter)
        except NotADeadLetter:
            continue
        assert letter_page(letter)
        assert whole_letter_as_json(letter)["offset"] == each.offset


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_made_up_letter_stops_a_redrive_or_is_finished_without_a_call(
    topics: tuple[Topic, Topic], cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    source, dead = topics
    source.produce([f"s{n}" for n in range(KEPT.stop)])
    source.delete_before(KEPT.start)
    forger = Forger(Random(seed), source, dead)
    write(dead, [forger.record(number) for number in range(RECORDS)])
    produce_with_header(dead.bootstrap, dead.name, b"v", b"\xff")

    originals, records = Originals(cluster.settings, {}), [*read_letters(cluster, dead.name)]
    ensure_shown(cluster, dead.name, records)
    cluster.group(default_group(dead.name))  # waits for its coordinator
    redrive = prepared(cluster, dead.name, ANY_VALUE, tmp_path / "plan.json", mixed=True)
    summary = drain(cluster, redrive, LocalSettings())

    assert summary.exit_code == 6
    assert summary.conserved
    handled: Counter[bytes | None] = Counter(redrive.handler.target.handled)
    assert handled[None], "of the source"
    group = default_group(dead.name)
    progress = redrive_progress(cluster, dead.name, group)
    finished = {n for start, end in progress.finished[0] for n in range(start, end)}
    finished |= set(range(cluster.committed(group, dead.name, [0])[0] or 0))
    for each in records:
        if each.offset not in finished:
            continue
        try:
            names = [name for name, _ in each.headers]
        except ValueError:
            continue  # no redrive can read it
        if any(name.startswith(OWN_HEADERS) for name in names):
            with pytest.raises(NotADeadLetter):
                read_letter(each)
            continue
        handled[originals.letter(each).message_key] -= 1
    assert (summary.left_alone or {})[GONE] > 0
    assert set(handled.values()) == {0}
