"""Letters that go to topics: few producers at once, however many topics there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from core.letters import Sample, as_record
from drainer.errors import Refused
from drainer.handler import Context, Retry
from drainer.letters.resend import TOPICS_MOST, Resend
from drainer.message import Unsplit
from drainer.model.terms import RedriveSettings
from drainer.policy.redrive import Redriven, split_letter


class Topics:
    """Writers to made-up topics, and which of them are open."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.written: list[str] = []
        self.most = 0
        self.room = asyncio.Event()
        self.refused = False

    def writer(self, topic: str) -> _Writer:
        if self.refused:
            raise Refused("not now")
        self.open.add(topic)
        self.most = max(self.most, len(self.open))
        return _Writer(topic, self)


class _Writer:
    partitions = 1

    def __init__(self, topic: str, topics: Topics) -> None:
        self.topic, self._topics = topic, topics

    async def write(self, value: bytes | None, key: bytes | None = None, **more: Any) -> None:
        await self._topics.room.wait()
        self._topics.written.append(self.topic)

    def close(self) -> None:
        self._topics.open.discard(self.topic)


def letters(count: int) -> Sequence[Redriven]:
    found = []
    for number in range(count):
        unit = Unsplit(b"v", "ValueError", "no", "ValueError: no")
        record = as_record(Sample(sub=unit, topic=f"t{number}").letter())
        found += list(split_letter(RedriveSettings(), record))
    return [sub for sub in found if isinstance(sub, Redriven)]


async def send(resend: Resend, sub: Redriven) -> BaseException | None:
    try:
        await resend.handle(sub)
    except Exception as error:
        return error
    return None


def test_an_idle_producer_makes_room_and_a_letter_waits_for_one() -> None:
    async def run() -> None:
        topics, resend = Topics(), Resend()
        resend.open(Context("dlt", "g", "d", 100, write_to=topics.writer))
        subs = letters(TOPICS_MOST + 20)
        assert len({sub.letter.topic for sub in subs}) == len(subs)
        sending = [asyncio.create_task(send(resend, sub)) for sub in subs]
        ends = [await each for each in sending[TOPICS_MOST:]]
        assert {type(end) for end in ends} == {Retry}
        topics.room.set()
        assert {await each for each in sending[:TOPICS_MOST]} == {None}
        for sub in subs[TOPICS_MOST:]:
            assert await send(resend, sub) is None
        assert len(set(topics.written)) == len(subs)
        assert topics.most <= TOPICS_MOST + 1  # one closes in a thread
        resend.close()
        assert not topics.open

    asyncio.run(run())


def test_a_topic_that_could_not_be_written_to_is_tried_again() -> None:
    async def run() -> None:
        topics, resend = Topics(), Resend()
        topics.room.set()
        resend.open(Context("dlt", "g", "d", 100, write_to=topics.writer))
        [sub] = letters(1)
        topics.refused = True
        with pytest.raises(Refused):
            await resend.handle(sub)
        topics.refused = False
        await resend.handle(sub)
        assert topics.written == [sub.letter.topic]

    asyncio.run(run())
