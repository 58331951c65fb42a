"""A drain that follows its topic: what is added meanwhile is drained, too, by the same laws."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from command.process import Command
from command.record import check_repeats, every_place
from kafka.topic import Topic, eventually

CONCURRENCY = 20
SECONDS = float(os.environ.get("DRAINER_FOLLOW_S", "60"))  # of the long test


def value(chance: random.Random) -> str:
    """Three operations, some sub-keys far hotter than others."""
    return json.dumps([f"k{int(chance.paretovariate(0.7)) % 200}" for _ in range(3)])


@contextmanager
def producing(topic: Topic, chance: random.Random, pause_s: float = 0.05) -> Iterator[list[str]]:
    """Go on producing to partition 0 from another thread; yields what was produced so far."""
    produced, over = list[str](), threading.Event()

    def produce() -> None:
        while not over.wait(pause_s):
            some = [value(chance) for _ in range(chance.randint(1, 20))]
            topic.produce(some)
            produced.extend(some)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield produced
    finally:
        over.set()
        thread.join()


def test_it_drains_what_is_added_until_it_is_stopped_and_goes_on_where_it_was(
    command: Command,
) -> None:
    topic = command.topic(["[1]"] * 10)
    running = command.begin(topic, "--follow")
    command.wait_for(running, "done", 10)
    topic.produce(["[2]"] * 10)
    command.wait_for(running, "done", 20)
    topic.grow(2)
    topic.partitions = 2
    topic.produce(["[3]"] * 5, partition=1)
    command.wait_for(running, "done", 25)
    eventually(lambda: command.committed(topic) == {0: 20, 1: 5}, "it commits both")
    running.signal(signal.SIGINT)

    stopped = running.ends(4)

    assert "--follow" in stopped.resume_words
    assert "--follow True" not in stopped.err
    topic.produce(["[4]"] * 10)
    ended = command.resume(topic, "--until-lag", "0")
    assert ended.code == 0
    assert command.committed(topic) == {0: 30, 1: 5}
    assert not command.record.repeats()
    assert len(command.record.done()) == 35
    command.record.check_order()
    plan = json.loads(command.plan(topic).read_bytes())
    assert {n: part["end"] for n, part in plan["partitions"].items()} == {"0": 30, "1": 5}


def test_an_added_partition_does_not_join_those_that_were_chosen(command: Command) -> None:
    topic = command.topic(["[1]"])
    running = command.begin(topic, "--follow", "--partition", "0")
    command.wait_for(running, "done", 1)
    topic.grow(2)
    topic.produce(["[2]"], partition=1)
    running.prints("got partition 1 after the plan was made: this drain leaves it out")
    running.signal(signal.SIGINT)
    running.ends(4)

    command.resume(topic, "--until-lag", "0")

    assert len(command.record.done()) == 1
    assert [*json.loads(command.plan(topic).read_bytes())["partitions"]] == ["0"]


def test_what_an_added_partition_lost_before_it_joined_is_reported_as_lost(
    command: Command,
) -> None:
    topic = command.topic(["[1]"])
    running = command.begin(topic, "--follow")
    command.wait_for(running, "done", 1)
    running.signal(signal.SIGINT)
    running.ends(4)
    topic.grow(2)
    topic.partitions = 2
    topic.produce(["[2]"] * 7, partition=1)
    topic.delete_before(5, partition=1)

    ended = command.resume(topic, "--until-lag", "0", "-o", "json", code=6)

    lost = "offsets 0-4 of partition 1, at most 5 records"
    assert re.search(f"warning: retention deleted .* added .* lost: {lost}", ended.err)
    assert ended.answer["partitions"]["1"]["lost"] == [[0, 5]]
    assert ended.answer["messages"]["done"] == 3
    assert command.committed(topic) == {0: 1, 1: 7}
    assert lost in command("plan", "verify", str(command.plan(topic))).out
    command("plan", "undo", str(command.plan(topic)), "--yes")
    assert command.committed(topic)[1] == 5, "the log begins there"


def test_an_empty_backlog_is_followed_and_a_change_of_until_lag_ends_that(
    command: Command,
) -> None:
    topic = command.topic()
    running = command.begin(topic, "--follow")
    eventually(lambda: command.plan(topic).exists(), "it has begun")
    topic.produce(["[1]"] * 10)
    command.wait_for(running, "done", 10)

    command("set", str(command.plan(topic)), "until-lag=10s")

    running.ends(0)
    assert command.committed(topic) == {0: 10}
    command("plan", "verify", str(command.plan(topic)))


def test_an_open_transaction_that_it_ends_before_is_reported(command: Command) -> None:
    topic = command.topic(["[1]"] * 2)
    running = command.begin(topic, "--follow")
    command.wait_for(running, "done", 2)
    topic.produce(["[2]"] * 3)
    producer = topic.open_transaction(["[3]"] * 4)
    command.wait_for(running, "done", 5)

    command("set", str(command.plan(topic)), "until-lag=0")

    ended = running.ends(0)
    producer.abort_transaction(15)
    assert re.search("excluded +4 offsets behind an open transaction", ended.out + ended.err)
    assert command.committed(topic) == {0: 5}


def test_a_parked_lane_ends_it_only_once_nothing_more_is_waited_for(command: Command) -> None:
    topic = command.topic(['["bad"]', '["good"]'])
    running = command.begin(topic, "--follow", "--on-failure", "park", "--retries", "0", bad="bad")
    command.wait_for(running, "done", 1)
    topic.produce(['["good"]'] * 5 + ['["bad"]'])
    command.wait_for(running, "done", 6)
    command("set", str(command.plan(topic)), "until-lag=0")

    parked = running.ends(5)

    assert "1 lane is parked" in parked.err
    assert command.committed(topic) == {0: 0}
    command.resume(topic, "--until-lag", "0")
    assert command.committed(topic) == {0: 8}


def test_killed_while_it_follows_it_loses_nothing(command: Command) -> None:
    follow_and_kill(command, kills=2, seconds=4.0)


@pytest.mark.long
def test_killed_again_and_again_while_it_follows_it_loses_nothing(command: Command) -> None:
    follow_and_kill(command, kills=int(SECONDS // 5), seconds=SECONDS)


def follow_and_kill(command: Command, kills: int, seconds: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic = command.topic()
    more = ("-c", str(CONCURRENCY), "--follow")
    killed = set[int]()
    with producing(topic, chance) as produced:
        running = command.begin(topic, *more, pause_ms=2)
        eventually(lambda: command.plan(topic).exists(), "it has begun")
        for _ in range(kills):
            begun = len(command.record.done())
            wanted = begun + chance.randrange(1, int(1000 * seconds / kills))
            command.wait_for(running, "done", min(wanted, begun + 500))
            running.kill()
            killed.add(running.pid)
            words = [*command.resume_of(command.plan(topic)), *more, *command.options(pause_ms=2)]
            running = command.start(*words)
    command.wait_for(running, "done", 3 * len(produced))
    eventually(lambda: command.committed(topic) == {0: len(produced)}, "it commits all")
    running.signal(signal.SIGTERM)
    running.ends(4)

    assert set(command.record.done()) == every_place(produced)
    command.record.check_order()
    check_repeats(command.record.lines(), killed, CONCURRENCY, kills)
    assert command.left_behind == [command.plan(topic).name]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--until", "3"], "--until ends the drain where --follow"),
        (["--only", "key == 'a'"], "--only ends the drain where --follow"),
        (["--engine", "spark"], "a drain on Spark can't follow its topic"),
    ],
)
def test_what_ends_a_drain_at_once_can_not_be_followed(
    command: Command, more: list[str], error: str
) -> None:
    topic = command.topic(["[1]"] * 4)

    refused = command.drain(topic, "--follow", *more, code=2)

    assert refused.error.startswith(error)
    assert command.left_behind == []


def test_a_drain_that_does_not_follow_has_no_lag_to_wait_for(command: Command) -> None:
    topic = command.topic(["[1]"])
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", 1)

    refused = command("set", str(command.plan(topic)), "until-lag=10", code=2)

    assert "does not follow its topic" in refused.error
    command.gate.touch()
    running.ends(0)
