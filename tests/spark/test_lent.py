"""Concurrency that is lent to the tasks of a drain."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drainer.model.option import Concurrency
from spark.story import Story

SLOTS, TAKES_S = 40, 0.02


def test_a_task_with_many_lanes_has_the_calls_that_one_with_a_hot_lane_can_t_make(
    story: Story,
) -> None:
    story.fill([["hot", *(f"k{5 * n + i}" for i in range(5))] for n in range(150)])

    summary = story.run(concurrency=8, wait_ms="6")

    assert summary.exit_code == 0
    story.ensure_all()
    running, most = Counter[int](), Counter[int]()
    for line in sorted(story.lines, key=lambda each: each["at"]):
        if line["what"] in ("begin", "end"):
            by = 1 if line["what"] == "begin" else -1
            for who in (0, line["pid"]):
                running[who] += by
            most |= running
    assert most[0] <= 8
    assert max(calls for pid, calls in most.items() if pid) > 4


@contextmanager
def downstream(slots: int, takes_s: float) -> Iterator[int]:
    """A server that answers so many at once, each after so long; gives its port."""
    loop, free = asyncio.new_event_loop(), asyncio.Semaphore(slots)

    async def answer(line: bytes, writer: asyncio.StreamWriter) -> None:
        async with free:
            await asyncio.sleep(takes_s)
        writer.write(line)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = set()
        async for line in reader:
            answers.add(task := loop.create_task(answer(line, writer)))
            task.add_done_callback(answers.discard)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.mark.long
def test_the_concurrency_that_all_tasks_can_use_is_found(story: Story) -> None:
    story.handler = f"{Path(__file__).with_name('calling.py')}:Calling"
    story.fill([[f"k{10 * n + i}" for i in range(10)] for n in range(8_000)])

    with downstream(SLOTS, TAKES_S) as port:
        summary = story.run(concurrency=Concurrency.auto(1_000), port=str(port))

    assert summary.exit_code == 0
    assert summary.last.limits.auto is not None
    assert summary.last.limits.auto.settled is not None
    assert 0.7 * SLOTS <= summary.last.limits.auto.settled <= 1.5 * SLOTS, summary.last.limits.auto
