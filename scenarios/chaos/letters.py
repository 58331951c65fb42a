"""Counts the letters that a drain left, by a reader of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
from confluent_kafka import Consumer, Message, TopicPartition

from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_topic
from scenarios.chaos.trace import Place

ANSWER_S = 30.0


def read_letters(settings: ClientSettings, topic: str) -> Counter[Place]:
    """Return how many letters there are of each sub-message, by its place."""
    conf = {"bootstrap.servers": settings.bootstrap_servers, "group.id": f"{topic}.reader"}
    consumer = Consumer(conf | {"enable.auto.commit": False, "auto.offset.reset": "error"})
    found: Counter[Place] = Counter()
    try:
        numbers = consumer.list_topics(topic, ANSWER_S).topics[topic].partitions
        left = {}
        for number in numbers:
            place = TopicPartition(topic, number, 0)
            left[number] = consumer.get_watermark_offsets(place, ANSWER_S)[1]
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while any(left.values()):
            [message] = consumer.consume(1, ANSWER_S)
            assert message.error() is None, message.error()
            found[_sub_message_of(message)] += 1
            left[message.partition()] -= 1
    finally:
        consumer.close()
    return found


def _sub_message_of(letter: Message) -> Place:
    headers: dict[str, Any] = dict(letter.headers() or ())
    [provenance] = [
        orjson.loads(value)
        for name, value in headers.items()
        if name.startswith("drainer-dead-letter/")
    ]
    return provenance["message_partition"], provenance["message_offset"], provenance["index"]


def delete_letters(settings: ClientSettings, topic: str) -> None:
    delete_topic(settings, topic)
