"""Consumers that are started again while a drain runs, as by an autoscaler, on a real broker."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

import drainer
from command.conftest import distinct
from command.process import ON_THE_LOOP, ON_THREADS, Command, Running
from drainer.model.settings import LocalSettings
from kafka.topic import Topic, eventually

COUNT = 240  # some nine seconds of calls that take 150 ms, four at once
AT_ONCE = 4
WAITS = ("--wait-for-group", "2m", "--concurrency", str(AT_ONCE))
WAITING = "drainer waits for the group to be empty, up to 2m"
WHO = "is in use: checkout-7 on 127.0.0.1 (state stable). Consumers joined it"


@contextmanager
def consumer(command: Command, topic: Topic, **more: str) -> Iterator[None]:
    """A consumer that is in the group and commits nothing."""
    member = topic.live_member(command.group(topic), "checkout-7", **more)
    try:
        yield
    finally:
        member.close()


def waits(running: Running, times: int = 1) -> None:
    """Wait until the drain waits for the consumers for the last of so many times."""
    eventually(lambda: running.err.count(WAITING) >= times or not running.running, "it waits", 60)
    assert running.running, running.err


def ensure_drained(command: Command, topic: Topic, times: int) -> None:
    """Ensure that all is done, and that each time repeated no more than what was in flight."""
    places = command.record.done()
    assert len(set(places)) == COUNT
    assert len(places) <= COUNT + times * AT_ONCE
    assert command.committed(topic) == {0: COUNT}


@pytest.mark.parametrize("handler", [ON_THE_LOOP, ON_THREADS])
def test_a_drain_waits_for_consumers_each_time_that_they_come(
    handler: str, command: Command
) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, "-c", str(AT_ONCE), handler=handler, pause_ms=150)
    command.wait_for(running, "done", 10)
    changed = command("set", str(command.plan(topic)), "wait-for-group=2m")
    assert "wait-for-group 0s → 2m" in changed.err
    for times, protocol in enumerate(("classic", "consumer"), 1):
        command.wait_for(running, "done", 40 * times)
        with consumer(command, topic, group_protocol=protocol):
            waits(running, times)
    ended = running.ends(0)
    ensure_drained(command, topic, 2)
    assert f"{WHO} 2 times during this drain, last at " in ended.err
    history = command("plan", "history", str(command.plan(topic))).out
    assert history.count("consumers joined") == 2


def test_without_the_option_a_drain_stops_and_says_who_came_how_often(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, "-c", "4", pause_ms=150)
    for number, times in enumerate(("1 time", "2 times"), 1):
        command.wait_for(running, "done", 40 * number)
        with consumer(command, topic):
            ended = running.ends(4)
        assert f"{WHO} {times} during this drain, last at " in ended.error
        assert "autoscaling.keda.sh/paused-replicas=0" in ended.hint
        running = command.start(*ended.resume_words, "--yes", *command.options(pause_ms=150))
    running.ends(0)
    ensure_drained(command, topic, 2)


def test_a_consumer_that_commits_ends_a_drain_that_waits(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, *WAITS, pause_ms=150)
    command.wait_for(running, "done", 15)
    member = topic.live_member(command.group(topic), "checkout-7", auto_offset_reset="earliest")
    try:
        waits(running)
        eventually(lambda: member.poll(0.1) is not None, "it gets a message")
        member.commit(asynchronous=False)
        ended = running.ends(8)
    finally:
        member.close()
    assert "something else commits for this group" in ended.error
    assert ended.way_out("undo")


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stop"])
def test_a_drain_that_waits_can_be_stopped(how: str, command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, *WAITS, pause_ms=150)
    command.wait_for(running, "done", 15)
    with consumer(command, topic):
        waits(running)
        assert "waiting for the group to be empty" in command("ps").out
        if how == "stop":
            command("stop", str(command.plan(topic)))
        else:
            running.signal(signal.Signals[how])
        ended = running.ends(4, within_s=20)
    assert ended.resume_words[:1] == ["resume"]
    assert "--wait-for-group 2m" in " ".join(ended.resume_words)
    command.resume(topic)
    command.ensure_drained(topic)


@pytest.mark.long
def test_an_autoscaler_that_starts_consumers_every_few_seconds_only_delays_a_drain(
    command: Command,
) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, *WAITS, pause_ms=300)
    over = threading.Event()

    def scale() -> None:
        for protocol in cycle(["classic", "consumer"]):
            if over.wait(2.0):
                return
            with consumer(command, topic, group_protocol=protocol):
                over.wait(1.5)

    scaling = threading.Thread(target=scale)
    scaling.start()
    try:
        ended = running.ends(0)
    finally:
        over.set()
        scaling.join()
    times = ended.err.count(WAITING)
    assert times >= 3
    ensure_drained(command, topic, times)


def test_a_program_waits_with_the_setting(command: Command, tmp_path: Path) -> None:
    topic = command.topic(distinct(3))
    told: list[str] = []
    member = topic.live_member(command.group(topic), "checkout-7")
    leaves = threading.Timer(2.0, member.close)
    leaves.start()
    summary = drainer.drain(
        topic=topic.name,
        group=command.group(topic),
        handler="count",
        client={"bootstrap.servers": command.bootstrap},
        from_="earliest",
        plan=tmp_path / "plan.json",
        settings=LocalSettings(wait_for_group_s="1m"),
        on_message=told.append,
    )
    leaves.join()
    assert summary.status == "done"
    assert any("waiting: group" in line for line in told)


@pytest.mark.long
def test_a_drain_on_spark_waits_and_goes_on_in_another_session(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    spark = ("--engine", "spark", "--master", "local[2]")
    running = command.begin(topic, *WAITS, *spark, pause_ms=300)
    command.wait_for(running, "done", 30)
    with consumer(command, topic):
        waits(running)
    running.ends(0)
    ensure_drained(command, topic, 1)
