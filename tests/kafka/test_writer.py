"""Writing records from a handler to a real broker: reported when there, or why they aren't."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from typing import Any

import pytest

from core.limit_samples import limits
from drainer.errors import BrokerUnreachable, RecordNotWritten, TopicMissing
from drainer.handler import Retry
from drainer.kafka import producer
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.policy.rate_cap import RateLimiter
from kafka.topic import Topic


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name, partitions=2)


def writing(
    settings: ClientSettings, topic: Topic, pace: RateLimiter | None = None
) -> closing[TopicWriter]:
    return closing(TopicWriter(settings, topic.name, pace))


def test_a_record_is_there_when_the_call_returns(settings: ClientSettings, topic: Topic) -> None:
    with writing(settings, topic) as writer:
        assert writer.partitions == 2

        async def write() -> None:
            await writer.write(b"v", b"k", partition=1, headers=[("h", b"1")], timestamp=1234567)
            await writer.write(None, None, partition=1)

        asyncio.run(write())
    first, second = topic.read_all(2, partition=1)
    headers, others = list(first.headers() or ()), list(second.headers() or ())
    assert (first.key(), first.value(), headers[:-1]) == (b"k", b"v", [("h", b"1")])
    assert headers[-1][0] == "drainer.id"
    assert headers[-1] != others[-1]
    assert first.timestamp()[1] == 1234567
    assert (second.key(), second.value()) == (None, None)


def test_one_that_is_too_large_is_refused_and_takes_no_others_with_it(
    settings: ClientSettings, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, config={"max.message.bytes": "2000"})
    with writing(settings, topic) as writer:

        async def write() -> list[BaseException | None]:
            sizes = [3000 if number == 25 else 100 for number in range(50)]
            calls = [writer.write(random.randbytes(size), b"k", partition=0) for size in sizes]
            return await asyncio.gather(*calls, return_exceptions=True)

        answers = asyncio.run(write())
    assert isinstance(answers[25], RecordNotWritten)
    assert [answer for answer in answers if answer is not None] == [answers[25]]
    assert len(topic.read_all(49)) == 49


def test_a_topic_that_is_not_there_is_refused_with_the_way_out(
    settings: ClientSettings, topic_name: str
) -> None:
    with pytest.raises(TopicMissing, match=topic_name) as raised:
        TopicWriter(settings, topic_name)
    assert raised.value.hint is not None
    assert "Create it first" in raised.value.hint


def test_who_would_wait_long_for_the_cap_comes_again(
    settings: ClientSettings, topic: Topic
) -> None:
    pace = RateLimiter(limits({100: 0.1}))
    with writing(settings, topic, pace) as writer:

        async def write() -> None:
            await writer.write(b"1", b"k", partition=0)
            with pytest.raises(Retry) as raised:
                await writer.write(b"2", b"k", partition=0)
            assert raised.value.after is not None
            assert raised.value.after > 5

        asyncio.run(write())
    assert pace.flowed == 1
    assert len(topic.read_all(1)) == 1


def test_what_can_not_be_written_fails_alone(settings: ClientSettings, topic: Topic) -> None:
    wrong: Any = [("h", 17)]
    with writing(settings, topic) as writer:

        async def write() -> None:
            others = [writer.write(b"%d" % number, b"k") for number in range(5)]
            with pytest.raises(RecordNotWritten, match="TypeError"):
                await writer.write(b"v", b"k", headers=wrong)
            await asyncio.gather(*others)
            await writer.write(b"5", b"k")

        asyncio.run(write())


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    settings: ClientSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_ends = Cluster.log_ends

    def without_one(cluster: Cluster, name: str, numbers: Any, *more: Any) -> Any:
        if 1 in numbers:
            raise BrokerUnreachable("no leader answers")
        return log_ends(cluster, name, numbers, *more)

    topic.produce("abc")
    monkeypatch.setattr(Cluster, "log_ends", without_one)
    assert producer.log_ends(settings, topic.name) == {0: 3}
    with writing(settings, topic) as writer:
        asyncio.run(writer.write(b"v", b"k", partition=0))
