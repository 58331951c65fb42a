"""The object of -o json has the command that comes next, and that command works."""

from __future__ import annotations

import shlex
from pathlib import Path

from command.conftest import distinct
from command.process import ON_THE_LOOP, Command, Outcome
from command.test_failure_policy import ONE_BAD_LANE


def following(outcome: Outcome) -> list[str]:
    program, *words = shlex.split(outcome.answer["next"])
    assert program == "drainer"
    return words


def test_an_agent_goes_from_a_look_to_the_end_by_the_next_commands(command: Command) -> None:
    topic = command.topic(distinct(30))
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 0})
    what = [*command.what(topic), *command.options()]
    where = ["-b", command.bootstrap, "-g", command.group(topic), "--for", "100ms"]
    as_json = ["-o", "json"]

    lag = command("lag", *where, *as_json)
    looked = command(*following(lag), *as_json)
    assert following(looked)[0] == "run"
    estimated = command("estimate", *what, "--latency", "1ms", "-c", "7", *as_json)
    assert following(estimated)[:1] == ["run"]
    dry = command(*following(estimated), "--dry-run", *as_json)
    assert dry.answer["status"] == "dry-run"
    assert dry.answer["concurrency"] == 7
    done = command(*following(dry), "--yes", *as_json)
    assert (done.answer["status"], done.answer["hint"]) == ("done", None)
    assert following(done)[:2] == ["plan", "verify"]
    verified = command(*following(done), *as_json)
    assert verified.answer["next"] is None
    command.ensure_drained(topic, once=True)


def test_an_inspection_leads_to_a_preview_of_the_same_drain(command: Command) -> None:
    topic = command.topic(distinct(30))
    what = [*command.what(topic, ON_THE_LOOP), "--from", "earliest", "--sample", "5"]

    looked = command("inspect", *what, "-o", "json")

    words = following(looked)
    assert "--sample" not in words
    dry = command(*words, *command.options(), "-o", "json")
    assert (dry.answer["status"], dry.answer["offsets"]) == ("dry-run", 30)


def test_dead_letters_lead_to_their_list_and_a_halt_to_the_resume(command: Command) -> None:
    topic = command.topic(ONE_BAD_LANE)
    more = ("--retries", "0", "-o", "json")
    dead = command.drain(topic, "--on-failure", "dead-letter", *more, code=6, bad="bad")
    assert command(*following(dead), "-o", "json").answer["letters"] == 3

    other = command.topic(ONE_BAD_LANE)
    halted = command.drain(other, *more, code=5, bad="bad")
    assert following(halted) == shlex.split(halted.answer["resume"])[1:]
    assert halted.answer["hint"]
    found = command("plan", "show", str(command.plan(other)), "-o", "json")
    assert following(found)[0] == "resume"


def test_an_error_has_the_command_of_its_hint(command: Command) -> None:
    topic = command.topic(distinct(50))
    plan = command.kill_amid(topic, "-c", "1", count=10, pause_ms=5)
    refused = command.drain(topic, "-o", "json", code=3)
    assert (refused.answer["status"], refused.answer["hint"]) == ("refused", refused.hint)
    verb, path = following(refused)[:2]
    assert (verb, Path(path)) == ("resume", plan)
