"""Originals of letters: an outage is waited out, and memory is bounded."""

from __future__ import annotations

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters import originals
from drainer.letters.originals import Originals
from drainer.message import Message, Origin
from kafka.topic import Topic


def letter(topic: str, offset: int) -> Message:
    place = {"topic": topic, "partition": "0", "offset": str(offset)}
    headers = [(f"__dlq.errors.{name}", value.encode()) for name, value in place.items()]
    return Message(Origin("dlt", "dlt-id", 0), offset, None, None, 1, headers)


def test_an_outage_of_the_source_is_waited_out_and_named() -> None:
    reasons: list[str] = []

    def wait(seconds: float, why: str) -> bool:
        reasons.append(why)
        return len(reasons) < 2

    Originals(ClientSettings("127.0.0.1:1"), {}).prepare([letter("orders", 3)], wait)
    assert len(reasons) == 2
    assert reasons[0].startswith("can't read originals of orders: ")


@pytest.mark.parametrize("most", [originals.AHEAD_BYTES, 5])
def test_what_does_not_fit_ahead_is_read_with_its_letter(
    cluster: Cluster, bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(originals, "AHEAD_BYTES", most)
    topic = Topic(bootstrap, topic_name)
    topic.produce([f"value {n}" for n in range(20)])
    reading = Originals(cluster.settings, {})
    messages = [letter(topic_name, offset) for offset in (7, 2, 19, 2, 900)]
    messages = [Message(m.origin, n, None, None, 1, m.headers) for n, m in enumerate(messages)]
    reading.prepare(messages, lambda _, __: False)
    found = [reading.letter(message) for message in messages]
    topic.discard()
    assert [each.payload for each in found] == [
        *(b"value 7", b"value 2", b"value 19", b"value 2", None)
    ]
    assert [each.why_not_redriven for each in found] == [
        *[None] * 4,
        "its original is not on this cluster",
    ]
