"""A finer key of whole messages, with barriers, through a service: no Python of the user's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from command.process import ENDS_WITHIN_S, Command, Running
from command.service import Service, aiohttp_web, service
from kafka.topic import Topic, eventually

ON_SPARK = ("--engine", "spark", "--master", "local[2]")
KEYS = ("--key", "payload.thread_id", "--barrier", "payload.kind == 'inbox'")
EVERY = 40  # One event in so many concerns the whole inbox.


def events(count: int) -> list[str]:
    """Events of nine threads, some of no thread, and some that concern everything."""
    found = []
    for n in range(count):
        event: dict[str, Any] = {"n": n, "thread_id": n * 7 % 10}
        if n % EVERY == EVERY - 1:
            event = {"kind": "inbox", "thread_id": None}
        elif event["thread_id"] == 9:
            del event["thread_id"]
        elif n % 2:  # The same thread, written in another way.
            event["thread_id"] = str(event["thread_id"])
        found.append(json.dumps(event))
    return found


@dataclass
class Mailer:
    """What a service saw of an inbox: the calls in the order in which they began and ended."""

    running: Counter[int] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)
    began: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    most_at_once: int = 0
    pause_s: float = 0.004

    async def answer(self, item: Any) -> Any:
        offset, event = item["offset"], item["payload"]
        lower = set(range(offset))
        barriers = {n for n in lower if n % EVERY == EVERY - 1}
        if not barriers <= self.ended:
            self.wrong.append(f"{offset} runs before barrier {min(barriers - self.ended)}")
        if event.get("kind") == "inbox":
            if not lower <= self.ended or self.running:
                self.wrong.append(f"barrier {offset} runs beside {self.running} or too early")
        elif "thread_id" in event:
            thread = str(event["thread_id"])
            self.began[thread].append(offset)
            same = {n for n in self.running if n != offset and str(n * 7 % 10) == thread}
            if same or item["key"] != thread:
                self.wrong.append(f"{offset} of {thread}, {item['key']!r}, runs beside {same}")
        elif item["key"] is not None or "keys" not in item or item["keys"] is not None:
            self.wrong.append(f"{offset} has the key {item['key']!r}")
        if item["payload_encoding"] != "json":
            self.wrong.append(f"{offset} came as {item['payload_encoding']}")
        self.running[offset] += 1
        self.most_at_once = max(self.most_at_once, self.running.total())
        await asyncio.sleep(self.pause_s)
        self.running[offset] -= 1
        self.running += Counter()  # Drop what is zero.
        self.ended.add(offset)
        return aiohttp_web.Response(status=204)

    def check(self, count: int, backwards: int = 0) -> None:
        assert self.wrong == []
        assert self.ended == set(range(count))
        for thread, offsets in self.began.items():
            back = sum(b <= a for a, b in pairwise(offsets))
            assert back <= backwards, (thread, offsets)


def begin(command: Command, topic: Topic, called: Service, *more: str) -> Running:
    what = [*command.what(topic, "http"), "--from", "earliest", "--yes", *KEYS]
    return command.start("run", *what, "--set", f"url={called.url}", "-c", "20", *more)


def inbox(command: Command, count: int) -> Topic:
    topic = command.topic()
    topic.produce(events(count), key=b"inbox-1")
    return topic


@pytest.mark.parametrize("engine", [(), pytest.param(ON_SPARK, marks=pytest.mark.long)])
def test_an_inbox_keeps_the_order_of_each_thread(command: Command, engine: tuple[str, ...]) -> None:
    topic, seen = inbox(command, 200), Mailer()
    with service(seen.answer) as called:
        outcome = begin(command, topic, called, *engine).ends(0)
    seen.check(200)
    assert seen.most_at_once > (1 if engine else 5)
    assert command.committed(topic) == {0: 200}
    payloads = command.plan(topic).read_text()
    assert '"keys": [\n      "payload.thread_id"\n    ]' in payloads
    for line in ("sub-keys  ", "payload.thread_id ", "none: a lane of its own", "barrier  "):
        assert line in outcome.err
    assert "waits for all before it, and all after it wait" in outcome.err
    barriers = sum(each % EVERY == EVERY - 1 for each in range(200))
    assert f"{barriers} sub-messages" in outcome.out.partition("barriers ")[2], outcome.out


@pytest.mark.parametrize(
    "engine",
    [pytest.param((), marks=pytest.mark.long), pytest.param(ON_SPARK, marks=pytest.mark.long)],
)
def test_killed_it_goes_on_from_its_plan_alone(command: Command, engine: tuple[str, ...]) -> None:
    topic, seen = inbox(command, 400), Mailer(pause_s=0.02)
    with service(seen.answer) as called:
        running = begin(command, topic, called, *engine)
        eventually(
            lambda: len(seen.ended) > 150 or not running.running, "some are done", ENDS_WITHIN_S
        )
        running.kill()
        eventually(lambda: not seen.running, "the service has ended its calls", 10)
        assert len(seen.ended) < 400
        command("resume", str(command.plan(topic)), "--yes", *engine)
    seen.check(400, backwards=1)
    assert command.committed(topic) == {0: 400}


def test_several_keys_and_one_lane_for_those_without(command: Command) -> None:
    moves = [{"from": n % 5, "to": n % 7} if n % 4 else {"at": n} for n in range(120)]
    topic = command.topic([json.dumps(move) for move in moves])
    running, wrong, alone = Counter[str](), list[Any](), list[int]()

    async def answer(item: Any) -> Any:
        keys = item["keys"] or [str(item["key"])]
        if any(running[key] for key in keys):
            wrong.append((item, running))
        if item["key"] is None and item["keys"] is None:
            alone.append(item["offset"])
        running.update(keys)
        await asyncio.sleep(0.002)
        running.subtract(keys)
        return aiohttp_web.Response(status=204)

    what = [*command.what(topic, "http"), "--from", "earliest", "--yes", "--unkeyed", "one-lane"]
    with service(answer) as called:
        keys = ("--key", "payload.from", "--key", "payload.to")
        command("run", *what, *keys, "--set", f"url={called.url}")
    assert wrong == []
    assert alone == list(range(0, 120, 4)), "in the order of the log"
    both = {item["offset"]: item["keys"] for item in called.items if item["keys"]}
    assert both[6] == ["1", "6"]
    assert 1 not in both, "from 1 to 1 is one key"


@pytest.mark.parametrize("engine", [(), pytest.param(ON_SPARK, marks=pytest.mark.long)])
def test_messages_without_a_key_run_beside_each_other(
    command: Command, engine: tuple[str, ...]
) -> None:
    topic = command.topic(["text"] * 60)
    running = most = 0

    async def answer(item: Any) -> Any:
        nonlocal running, most
        assert item["payload_encoding"] == "base64"
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return aiohttp_web.Response(status=204)

    what = [*command.what(topic, "http"), "--from", "earliest", "--yes", "-c", "10"]
    with service(answer) as called:
        command("run", *what, *engine, "--set", f"url={called.url}")
    assert most == 10 or (engine and most > 5)


def test_every_command_of_a_backlog_takes_the_keys(command: Command) -> None:
    topic = inbox(command, 100)
    where = ("--topic", topic.name, "--group", "g", "-b", command.bootstrap, "--from", "earliest")
    inspected = command("inspect", *where, "--handler", "count", *KEYS, "-o", "json").answer
    assert inspected["skew"]["barriers"] == 2
    assert {each["name"] for each in inspected["skew"]["hottest"]} == {f"'{n}'" for n in range(9)}
    how = ("--latency", "10ms", "-c", "50", "-o", "json")
    estimated = command("estimate", *where, "--handler", "count", *KEYS, *how).answer["estimate"]
    alone = command("estimate", *where, "--handler", "count", *how).answer["estimate"]
    assert estimated["range_s"][1] < alone["range_s"][1] / 3
    certified = command("certify", "count", *where[:2], *where[4:6], *KEYS)
    assert "certified on this sample" in certified.out


def test_a_key_that_fails_rejects_the_message(command: Command) -> None:
    topic = command.topic(['{"thread_id": 1}', '{"thread_id": [1]}', "{}"])
    what = [*command.what(topic, "count"), "--from", "earliest", "--yes", *KEYS]
    halted = command("run", *what, code=5)
    assert "a key must be text or a whole number" in halted.error
    assert f"{topic.name}/0/1" in halted.error
    how = ("--yes", "-o", "json", "--tune", "on-split-failure=skip")
    resumed = command("resume", str(command.plan(topic)), *how, code=6).answer["messages"]
    assert (resumed["read"], resumed["done"], resumed["failed"]) == (3, 2, 1)
