"""Messages that ``split`` rejects in a drain on Spark, which reads some of a backlog again."""

from __future__ import annotations

from pathlib import Path

import pytest

from command.conftest import committed
from command.process import Command, Running
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic, eventually

HANDLER = """
import os, time, drainer

HERE = os.path.dirname(os.path.abspath(os.environ["DONE"]))

class Handler(drainer.Handler):
    def split(self, message):
        if message.value == b"bad" and not os.environ.get("FIXED"):
            raise ValueError("malformed")
        if message.value == b"flaky" and not os.environ.get("FIXED"):
            with open(HERE + "/calls", "a") as calls:
                calls.write("x")
            if os.path.getsize(HERE + "/calls") > 1:
                raise ValueError("malformed since")
        if message.value == b"barrier":
            yield drainer.Barrier(message.value)
        else:
            yield drainer.SubMessage(f"k{message.offset % 7}", message.value)

    def handle(self, sub):
        time.sleep(float(os.environ["PAUSE"]))
        with open(os.environ["DONE"], "a") as done:
            done.write(f"{sub.message.offset}\\n")
"""
ON_SPARK = ("--engine", "spark", "--master", "local[2]", "-c", "2")


def begin(command: Command, topic: Topic, pause: str, *more: str) -> tuple[Running, Path]:
    (command.home / "rejecting.py").write_text(HANDLER)
    done = command.home / "done"
    command.env |= {"DONE": str(done), "PAUSE": pause}
    what = command.what(topic, f"{command.home / 'rejecting.py'}:Handler")
    running = command.start("run", *what, "--from", "earliest", "--yes", *ON_SPARK, *more)
    return running, done


def resume_fixed(command: Command, topic: Topic) -> None:
    command("resume", str(command.plan(topic)), "--yes", env={"FIXED": "1", "PAUSE": "0"})


def ensure_all(done: Path, cluster: Cluster, topic: Topic, messages: int) -> None:
    """Each was handled, in the order of its sub-key, before it was committed."""
    found = [int(line) for line in done.read_text().split()]
    assert sorted(found) == list(range(messages))
    for key in range(7):
        of_key = [offset for offset in found if offset % 7 == key]
        assert of_key == sorted(of_key)
    assert committed(cluster, topic) == {0: messages}


@pytest.mark.long
def test_parking_that_is_set_between_two_stretches_of_a_wave_loses_nothing(
    command: Command,
) -> None:
    values = ["x"] * 500
    values[100] = values[300] = "barrier"
    values[205] = "bad"
    topic = command.topic(values)
    running, done = begin(command, topic, "0.05", "--on-failure", "skip")
    eventually(lambda: done.exists() or not running.running, "it handles", 100)
    command("set", str(command.plan(topic)), "on-split-failure=park")
    running.ends(5)
    assert command.committed(topic) == {0: 205}
    assert max(map(int, done.read_text().split())) < 205
    resume_fixed(command, topic)
    ensure_all(done, command.cluster, topic, 500)


@pytest.mark.long
def test_a_message_that_is_rejected_at_the_second_reading_alone_loses_nothing(
    command: Command,
) -> None:
    values = ["x"] * 200
    values[30], values[70] = "flaky", "bad"
    topic = command.topic(values)
    running, done = begin(command, topic, "0", "--on-split-failure", "park")
    running.ends(5)
    assert command.committed(topic) == {0: 30}
    resume_fixed(command, topic)
    ensure_all(done, command.cluster, topic, 200)
