"""A bad night: stopped and woken again, a clock that jumps. More chaos is in scenarios/chaos."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command.conftest import MakeTopic, committed, distinct, operations
from command.process import FAST, Command, Running
from command.record import every_place
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import lock_group
from kafka.topic import eventually

SESSION = ("-X", "session.timeout.ms=1500")
CLOCK = Path(__file__).parents[2] / "scenarios/chaos/clock"


def stop_until_its_lock_is_gone(running: Running, cluster: Cluster, group: str) -> None:
    running.signal(signal.SIGSTOP)
    eventually(
        lambda: not cluster.group(lock_group(group)).members, "the lock's session is over", 30
    )


def test_one_that_was_stopped_until_another_took_its_lock_gives_way(
    command: Command, cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(50))
    first = command.begin(topic, *SESSION, *FAST, gate=command.gate)
    command.wait_for(first, "begun", 50)
    stop_until_its_lock_is_gone(first, cluster, command.group(topic))
    second = command.begin(topic, *SESSION, *FAST, "--plan", "another.json", gate=command.gate)
    command.wait_for(second, "begun", 100)
    first.signal(signal.SIGCONT)
    outcome = first.ends(4)
    assert "took the lock" in outcome.error
    assert "let that one finish" in outcome.hint
    assert not command.record.done(), "both are held up: nobody has moved the group"
    command.gate.touch()
    second.ends(0)
    assert committed(cluster, topic) == {0: 50}


@pytest.mark.long
def test_a_clock_that_jumps_by_hours_changes_nothing(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    messages = operations(300)
    topic = make_topic(messages)
    paths = [str(CLOCK), os.environ.get("PYTHONPATH", "")]
    command.env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    running = command.begin(topic, *FAST, pause_ms=2)
    command.wait_for(running, "done", 200)
    running.kill()
    command.resume(topic, *FAST)
    assert set(command.record.done()) == every_place(messages)
    command.record.check_order()
    assert committed(cluster, topic) == {0: 300}
    updated = datetime.fromisoformat(json.loads(command.plan(topic).read_text())["updated"])
    assert abs(datetime.now(UTC) - updated).total_seconds() > 1, "the clock did not jump"
