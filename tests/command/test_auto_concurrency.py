"""``--concurrency auto`` from outside: it is shown, stays below its most, and survives a kill."""

from __future__ import annotations

import json

from command.conftest import MakeTopic, operations
from command.process import Command

AUTO = ("--concurrency", "auto:100")


def test_auto_keeps_order_and_is_resumed_after_a_kill(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(operations(1_500, lanes=300))
    running = command.begin(topic, *AUTO, pause_ms=20)
    running.says("to 100 at most")
    command.wait_for(running, "done", 1_000)
    running.kill()

    outcome = command.resume(topic, *AUTO, "--json", pause_ms=20)

    assert outcome.answer["status"] == "done"
    found = outcome.answer["auto"]
    assert found["most"] == 100
    assert 20 < command.record.most_at_once() <= 100 + 100  # what was killed stays begun
    assert set(command.record.done()) == {(0, n, i) for n in range(1_500) for i in range(2)}
    command.record.check_order()
    assert "concurrency" not in json.loads(command.plan(topic).read_text())
