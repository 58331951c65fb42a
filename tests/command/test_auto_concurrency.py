"""``--concurrency auto`` from outside: it grows, stays below its most, and survives a kill."""

from __future__ import annotations

import json

from command.conftest import MakeTopic, distinct, operations
from command.process import Command

AUTO = ("--concurrency", "auto:100")


def test_auto_goes_beyond_where_it_begins_and_not_beyond_its_most(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(2_000))
    outcome = command.drain(topic, *AUTO, "--json", pause_ms=50)

    found = outcome.answer["auto"]
    assert found["most"] == 100
    assert 20 < found["limit"] <= 100
    assert found["settled"] is None or found["best_per_s"] > 0
    assert 20 < command.record.most_at_once() <= 100
    assert sorted(command.record.done()) == [(0, n, 0) for n in range(2_000)]


def test_auto_keeps_order_and_is_resumed_after_a_kill(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(operations(1_500, lanes=300))
    running = command.begin(topic, *AUTO, pause_ms=20)
    command.wait_for(running, "done", 1_000)
    running.kill()

    outcome = command.resume(topic, *AUTO, "--json", pause_ms=20)

    assert outcome.answer["status"] == "done"
    assert outcome.answer["auto"]
    assert set(command.record.done()) == {(0, n, i) for n in range(1_500) for i in range(2)}
    command.record.check_order()
    assert "concurrency" not in json.loads(command.plan(topic).read_text())


def test_the_plan_of_action_says_auto(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(distinct(3))
    what = (*command.what(topic), "--from", "earliest", "--dry-run")

    assert command("run", *what, *AUTO, "--json").answer["concurrency"] == "auto:100"
    text = command("run", *what, "-c", "auto").err
    assert "auto" in next(line for line in text.splitlines() if "concurrency" in line)


def test_while_it_runs_lines_tell_the_limit_and_why(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(500))
    outcome = command.drain(topic, *AUTO, pause_ms=20)

    assert "concurrency auto, 100 at most" in outcome.err
    assert "(auto, " in outcome.err


def test_what_is_no_concurrency_is_refused(command: Command) -> None:
    outcome = command("run", "--topic", "t", "--group", "g", "-c", "auto:0", code=2)

    assert "--concurrency" in outcome.err
