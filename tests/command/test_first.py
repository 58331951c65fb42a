"""Priority classes are drained before the rest, from the command line and on a real broker."""

from __future__ import annotations

import json

import pytest

from command.process import Command
from command.record import every_place

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
    assert (printed["where"], printed["deferred"]) == (FIRST[1], 0)
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

    command.handlers.write_text(command.handlers.read_text() + "\n# fixed\n")
    assert "--same-split" in command.resume(topic, code=3).hint, "the former split decides"
    more = ("--same-split", "--first", "key =~ 'c6-.*'", "-o", "json")
    found = command.resume(topic, *more).answer
    rest = command.record.done()[len(first) :]
    other = of_customer(values, 6)
    assert set(rest[: len(other)]) == other
    command.ensure_drained(topic, once=True)
    assert [each["where"] for each in found["classes"]] == [ONLY[1], "key =~ 'c6-.*'"]
    assert found["messages"]["done"] == 200


@pytest.mark.long
def test_a_change_during_one_pass_applies_in_the_next(command: Command) -> None:
    values = interleaved(80)
    topic = command.topic(values)
    running = command.begin(topic, *FIRST, "-c", "4", gate=command.gate, pause_ms=5)
    command.wait_for(running, "begun", 1)
    command("set", str(command.plan(topic)), "concurrency=1")
    command.gate.touch()
    running.ends(0)
    first, open_, most = of_customer(values, 3), 0, 0
    for line in command.record.lines():
        open_ += 1 if line.mark == "begun" else -1
        most = max(most, open_ if line.place not in first else 0)
    assert most == 1
    history = json.loads(command.plan(topic).read_text())["history"]
    assert [each["what"] for each in history] == ["begun", "changed", "went on", "ended"]
    assert "done with the class" in history[2]["details"][0]


@pytest.mark.long
def test_a_class_can_be_given_up(command: Command) -> None:
    topic = command.topic(interleaved(40))
    command.kill_amid(topic, *FIRST, "-c", "1", mark="begun", gate=command.gate)
    outcome = command.resume(topic, "--first", "none", "-o", "json")
    assert outcome.answer["classes"] == []
    command.ensure_drained(topic)


@pytest.mark.long
def test_spark_takes_the_rest(command: Command) -> None:
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


@pytest.mark.long
def test_a_dry_run_and_an_estimate_show_what_it_gains_and_costs(command: Command) -> None:
    values = interleaved(400)
    topic = command.topic(values)
    what = [*command.what(topic), "--from", "earliest", "--latency", "10ms", "-c", "4", *FIRST]
    for words in (["run", "--dry-run"], ["estimate"]):
        found = command(*words, *what, "-o", "json").answer["estimate"]
        first = found["first"]
        (printed,) = first["classes"]
        assert printed["sub_messages"] == len(of_customer(values, 3))
        without = found["sub-key"]["seconds"]
        assert printed["seconds"] < without / 2
        assert first["seconds"] == pytest.approx(without + first["later_s"])
        assert 0 < first["later_s"] < without
    assert "all, in one pass" in command("estimate", *what).out
