"""A writer to a dead-letter topic can do nothing to the redrive of real letters."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.letters import Sample, as_record, mutated_letters
from drainer.errors import NotADeadLetter
from drainer.kafka.cluster import Cluster
from drainer.letters.reading import read_letters
from drainer.letters.receipts import RECEIPT_BYTES_MOST, read_receipt
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model import codec
from drainer.model.settings import FailureSettings, Limit, LocalSettings, OnFailure
from drainer.model.terms import RedriveSettings
from drainer.operations.drain import drain
from drainer.operations.start import Prepared, Request
from drainer.policy.dead_letter import (
    FORMAT,
    RECEIPT,
    DeadLetter,
    default_dead_letter_topic,
    read_letter,
)
from kafka.topic import Topic

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
            Origin("", "", 0), 0, letter.key, letter.value, 1, [(FORMAT, dumps(printed))]
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
        request = Request(
            topic=self.topic.name,
            group=default_group(self.topic.name),
            handler=load_handler(str(self.folder / "handler.py")),
            failures=FAILURES,
            plan_path=self.folder / plan,
        )
        return prepare_redrive(self.cluster, request, RedriveSettings(), LocalSettings())

    def redrive(self, plan: str = "plan.json") -> list[int]:
        """The offsets of the real letters that the handler got."""
        prepared = self.prepared(plan)
        done = drain(self.cluster, prepared, LocalSettings())
        assert done.exit_code in (0, 6)
        assert done.conserved
        handled: list[int] = prepared.handler.target.handled
        return handled


def dumps(printed: object) -> bytes:
    return orjson.dumps(printed)


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
    headers = [(FORMAT, printed), ("h", os.urandom(room))]
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
    header = (RECEIPT, codec.encode(body))
    assert read_receipt(Message(Origin("d", "t", 0), 7, None, None, 1, [header])) is None
