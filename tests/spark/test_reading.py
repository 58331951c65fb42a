"""The reading of waves, without Spark: what becomes of it when it is asked to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest

from core.messages import plan_of
from drainer.engine.settings import LocalSettings
from drainer.errors import BrokerUnreachable, Interrupted
from drainer.kafka.settings import ClientSettings
from drainer.spark import reading
from drainer.spark.jobs import Jobs, PreparedWave
from drainer.spark.lease import LOCAL
from drainer.spark.python_worker import HandlerSpec
from drainer.spark.reading import Reader, Terms
from drainer.spark.shipping import Shipped
from drainer.spark.slices import SliceTask
from drainer.spark.slots import Slots

SPEC = HandlerSpec(Shipped("h.py:H"), ClientSettings("x:1"), "t", "g", "d", 1, "/state", LOCAL, 1)
TERMS = Terms(SPEC, None, LocalSettings(concurrency=1), 2**20, Slots(3, 2), 64)


class Rows:
    """What Spark holds until it is let go of."""

    held = True

    def unpersist(self) -> None:
        self.held = False


class MadeUpJobs:
    """Reads whatever is asked for; what is in ``answers`` comes instead, once.

    A cancelled job goes on: Spark had not heard of it yet. With ``forgets`` it never hears of any.
    """

    def __init__(self, *answers: Exception, forgets: bool = False) -> None:
        self.answers = list(answers)
        self.forgets = forgets
        self.asked = threading.Event()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.rows: list[Rows] = []
        self.times = 0

    def read(self, task: SliceTask, name: str) -> PreparedWave:
        self.times += 1
        self.begun.release()
        if self.answers:
            raise self.answers.pop(0)
        self.may_end.wait(10)
        rows = Rows()
        self.rows.append(rows)
        ranges = {each.partition: (each.start, each.end) for each in task.slices}
        return PreparedWave(rows, ranges, {}, {}, task.streams)  # type: ignore[arg-type]

    def wait_until_begun(self, name: str, give_up: Callable[[], bool]) -> None:
        while self.forgets and not give_up():
            self.asked.set()

    def cancel(self, name: str) -> None:
        self.may_end.set()


def reader_of(jobs: MadeUpJobs) -> Reader:
    return Reader(plan_of(100), {0: 0}, TERMS, cast(Jobs, jobs))


async def begun(jobs: MadeUpJobs) -> None:
    assert await asyncio.to_thread(jobs.begun.acquire, timeout=10)


async def stop(reader: Reader) -> None:
    reader.stop()
    await reader.cancel()


def test_a_stop_while_the_broker_is_away_reads_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "READ_AGAIN_S", 0.05)
    jobs = MadeUpJobs(BrokerUnreachable("nobody answers"))
    jobs.may_end.set()

    async def story() -> None:
        reader = reader_of(jobs)
        reader.begin()
        await begun(jobs)
        while reader.trouble is None:  # noqa: ASYNC110 - it says so at once
            await asyncio.sleep(0)
        await stop(reader)
        with pytest.raises(Interrupted):
            await reader.take()

    asyncio.run(story())
    assert jobs.times == 1


def test_a_wave_that_somebody_waits_for_is_let_go_of_at_a_stop() -> None:
    jobs = MadeUpJobs()

    async def story() -> None:
        reader = reader_of(jobs)
        taking = asyncio.create_task(reader.take())
        await begun(jobs)
        await stop(reader)
        taking.cancel()  # as the drain does with its work
        with pytest.raises((Interrupted, asyncio.CancelledError)):
            await taking

    asyncio.run(story())
    assert [rows.held for rows in jobs.rows] == [False]


def test_a_wave_that_came_at_the_same_moment_as_a_stop_is_not_handled() -> None:
    jobs = MadeUpJobs()

    async def story() -> None:
        reader = reader_of(jobs)
        taking = asyncio.create_task(reader.take())
        await begun(jobs)
        reader.stop()
        jobs.may_end.set()
        with pytest.raises(Interrupted):
            await taking
        await reader.cancel()

    asyncio.run(story())
    assert [rows.held for rows in jobs.rows] == [False]


def test_a_wave_is_not_held_back_for_a_job_that_is_over() -> None:
    jobs = MadeUpJobs(forgets=True)
    jobs.may_end.set()

    async def story() -> None:
        reader = reader_of(jobs)
        reader.begin(behind="a job that Spark has forgotten")
        assert await asyncio.to_thread(jobs.asked.wait, 10)
        assert await asyncio.wait_for(reader.take(), 10) is not None

    asyncio.run(story())
