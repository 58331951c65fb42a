"""Priority classes are drained before the rest, from the command line and on a real broker."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from command.conftest import is_refused
from command.process import Command
from command.record import every_place
from command.test_steering import listed, steer

CUSTOMERS = 8
FIRST = ("--first", "key =~ 'c3-.*'")
ONLY = ("--only", "key =~ 'c3-.*'")


def interleaved(count: int, shared_every: int = 0) -> list[str]:
    """Messages of customers in turn, two operations each on documents of their own; some begin with
    one on a document that all of them share."""
    values = []
    for n in range(count):
        customer = n % CUSTOMERS
        shared = ["shared"] if shared_every and n % shared_every == 0 else []
        values.append(json.dumps([*shared, f"c{customer}-{n % 5}", f"c{customer}-{n % 7}"]))
    return values


def of_customer(values: list[str], customer: int) -> set[tuple[int, int, int]]:
    return {
        (partition, offset, index)
        for partition, offset, index in every_place(values)
        if json.loads(values[offset])[index].startswith(f"c{customer}-")
    }


def test_a_customer_is_drained_before_the_rest_in_one_command(command: Command) -> None:
    values = interleaved(200, shared_every=3)
    topic = command.topic(values)
    outcome = command.drain(topic, *FIRST, "-o", "json")
    done, first = command.record.done(), of_customer(values, 3)
    assert set(done[: len(first)]) == first
    command.ensure_drained(topic, once=True)
    (printed,) = outcome.answer["classes"]
    assert (printed["where"], printed["held"]) == (FIRST[1], 0)
    assert printed["sub_messages"]["done"] == len(first)
    assert printed["ended"] < outcome.answer["history"][-1]["at"]
    assert outcome.answer["conserved"]
    assert command.committed(topic) == {0: 200}


def test_only_a_customer_and_the_rest_in_a_resume(command: Command) -> None:
    values = interleaved(200, shared_every=4)
    topic = command.topic(values)
    first = of_customer(values, 3)
    outcome = command.drain(topic, *ONLY)
    assert set(command.record.done()) == first
    assert command.committed(topic) == {0: 0}, "the front of the backlog is not done"
    assert "Drained the selected sub-messages" in outcome.out
    assert outcome.resume_words[:2] == ["resume", command.plan(topic).name]
    assert len(command.plan(topic).read_bytes()) < 6_000, "however the customers are interleaved"

    found = command.resume(topic, "--first", "key =~ 'c6-.*'", "-o", "json").answer
    rest = command.record.done()[len(first) :]
    other = of_customer(values, 6)
    assert set(rest[: len(other)]) == other
    command.ensure_drained(topic, once=True)
    assert [each["where"] for each in found["classes"]] == [ONLY[1], "key =~ 'c6-.*'"]
    assert found["messages"]["done"] == 200
    assert command.committed(topic) == {0: 200}


def test_a_request_during_one_pass_holds_in_the_next(command: Command) -> None:
    values = interleaved(80)
    topic = command.topic(values)
    running = command.begin(topic, *FIRST, "-c", "4", gate=command.gate, pause_ms=5)
    command.wait_for(running, "begun", 1)
    steer(command, topic, "set", "concurrency=1")
    found = listed(command, topic)
    assert found is not None
    steer(command, topic, "pause")
    command.gate.touch()
    first = of_customer(values, 3)
    steer(command, topic, "unpause")
    command.wait_for(running, "done", len(first) + 20)
    steer(command, topic, "pause", "--for", "1s")
    running.ends(0)
    open_, most = 0, 0
    for line in command.record.lines():
        open_ += 1 if line.mark == "begun" else -1
        most = max(most, open_ if line.place not in first else 0)
    assert most == 1
    plan = json.loads(command.plan(topic).read_text())
    deeds = [each["what"] for each in plan["history"]]
    assert deeds[:5] == ["begun", "changed", "paused", "unpaused", "ended"]
    assert "done with the class" in plan["history"][4]["details"][0]


@pytest.mark.long
def test_spark_takes_the_rest(command: Command, tmp_path: Path) -> None:
    values = interleaved(120, shared_every=3)
    topic = command.topic(values)
    command.drain(topic, *ONLY)
    first = len(command.record.done())
    master = ("--engine", "spark", "--master", "local[2]")
    found = command.resume(topic, *master, "--first", "key =~ 'c6-.*'", "-o", "json").answer
    done = command.record.done()
    other = of_customer(values, 6)
    assert set(done[first : first + len(other)]) == other, "this process takes it, before Spark"
    command.ensure_drained(topic, once=True)
    assert (found["engine"], found["messages"]["done"]) == ("spark", 120)


def test_a_handler_that_was_changed_does_not_go_on_from_a_class_unasked(command: Command) -> None:
    """The former split decides what is done."""
    topic = command.topic(interleaved(40))
    command.drain(topic, *ONLY)
    done = len(command.record.done())
    command.handlers.write_text(command.handlers.read_text() + "\n# fixed\n")
    refused = command.resume(topic, code=3)
    assert "--same-split" in refused.hint
    assert len(command.record.done()) == done
    command.resume(topic, "--same-split")
    command.ensure_drained(topic, once=True)


def test_a_class_can_be_given_up(command: Command) -> None:
    topic = command.topic(interleaved(40))
    running = command.begin(topic, *FIRST, "-c", "1", gate=command.gate)
    command.wait_for(running, "begun", 1)
    running.signal(signal.SIGINT)
    running.prints("stopping: interrupted by SIGINT")
    command.gate.touch()
    running.ends(4)
    outcome = command.resume(topic, "--first", "none", "-o", "json")
    assert outcome.answer["classes"] == []
    command.ensure_drained(topic, once=True)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--first", "payload.customer ="), "--first"),
        (("--only", "nonsense == 1"), "--only: there is no nonsense"),
        ((*FIRST, *ONLY), "excludes"),
        ((*FIRST, "--max-per-key", "3"), "--max-per-key"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    command: Command, words: tuple[str, ...], output: str
) -> None:
    outcome = command.drain(command.topic(interleaved(8)), *words, code=2)
    assert output in outcome.error
    is_refused(command, outcome)


def test_a_dry_run_and_an_estimate_show_what_it_gains_and_costs(command: Command) -> None:
    values = interleaved(400)
    topic = command.topic(values)
    what = [
        *command.what(topic),
        "--from",
        "earliest",
        "--latency",
        "10ms",
        "-c",
        "4",
        "-o",
        "json",
    ]
    for words in (["run", "--dry-run"], ["estimate"]):
        found = command(*words, *what, *FIRST).answer["estimate"]
        first = found["first"]
        (printed,) = first["classes"]
        assert printed["sub_messages"] == len(of_customer(values, 3))
        without = found["sub-key"]["seconds"]
        assert printed["seconds"] < without / 2
        assert first["seconds"] == pytest.approx(without + first["later_s"])
        assert 0 < first["later_s"] < without
    shown = command("estimate", *what[:-2], *FIRST)
    assert "all, in one pass" in shown.err + shown.out
