"""`drainer inspect` as a process: what is urgent on stderr, data on stdout, and nothing touched."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command

ENDLESS = """
import json, time, drainer
class Slow(drainer.Handler):
    def split(self, message):
        time.sleep(0.02)
        return []
    def handle(self, sub): raise AssertionError
"""


def test_a_whole_look_is_exact_and_leaves_no_trace(command: Command) -> None:
    topic = command.topic(operations(300, lanes=5))
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 100})
    before = command.cluster.group(command.group(topic))

    outcome = command("inspect", *command.what(topic), "--full", "-o", "json")

    exact = Counter(
        repr(doc) for value in operations(300, lanes=5)[100:] for doc in json.loads(value)
    )
    found = outcome.answer
    assert found["messages"] == 200
    assert found["skew"]["sub_messages"] == 400
    assert {s["name"]: s["count"] for s in found["skew"]["hottest"]} == dict(exact)
    assert found["reading"]["full"]
    lines = outcome.err.splitlines()  # a slow look prints how far it is before
    (headline,) = (n for n, line in enumerate(lines) if "200 messages behind" in line)
    assert "of the work" in lines[headline + 1]
    assert command.committed(topic) == {0: 100}
    assert command.cluster.group(command.group(topic)) == before
    assert command.left_behind == []
    assert not command.record.path.exists()


@pytest.mark.long
def test_ctrl_c_ends_a_long_look_cleanly(command: Command) -> None:
    topic = command.topic(operations(5000))
    handler = Path(command.home / "slow.py")
    handler.write_text(ENDLESS)
    what = ["-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic)]
    running = command.start(
        "inspect", *what, "--handler", f"{handler}:Slow", "--from", "earliest", "--full"
    )
    running.prints("reading: ")

    running.signal(signal.SIGINT)
    outcome = running.ends(4)

    assert "■ interrupted" in outcome.err
    assert command.committed(topic) == {0: None}
