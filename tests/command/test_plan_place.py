"""Places of a plan: folders that are missing or vanish, and plans already there."""

from __future__ import annotations

import shutil

import pytest

from command.conftest import distinct, is_refused
from command.process import Command
from drainer.control.place import link_to
from kafka.topic import Topic


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(50))


def test_a_plan_folder_that_is_not_there_is_refused(command: Command, topic: Topic) -> None:
    outcome = command.drain(topic, "--plan", "nowhere/plan.json", "--dry-run", code=3)
    assert "nowhere" in outcome.error
    assert "--plan" in outcome.hint
    is_refused(command, outcome)
    assert command.committed(topic) == {0: None}


def test_a_plan_folder_that_vanishes_while_draining_leaves_nothing_to_resume(
    command: Command, topic: Topic
) -> None:
    folder = command.folder / "plans"
    folder.mkdir()
    where = ["--plan", "plans/plan.json", "-c", "4"]
    running = command.begin(topic, *where, gate=command.gate)
    command.wait_for(running, "begun", 4)
    shutil.rmtree(folder)
    command.gate.touch()
    outcome = running.ends(8)
    assert "removed or moved" in outcome.error
    assert "drainer run" in outcome.hint
    assert "valid" not in outcome.err
    assert "resume: " not in outcome.out


def test_a_run_from_another_folder_is_refused_for_the_plan_that_this_machine_remembers(
    command: Command, topic: Topic
) -> None:
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 0})
    plan = command.kill_amid(topic, "-c", "4", count=30, pause_ms=20)
    command.folder = command.home / "elsewhere"
    command.folder.mkdir()
    again = ("--from", "committed-or-earliest", "--dry-run", "-o", "json")

    refused = command.drain(topic, *again, code=3)
    named = command.drain(topic, *again, "--plan", "again.plan.json").answer
    moved = plan.rename(command.home / "moved.plan.json")
    unknown = command.drain(topic, *again).answer

    assert f"{plan} has an unfinished drain of this group with" in refused.error
    assert f"drainer resume {plan} --" in refused.hint
    (warning,) = [each for each in named["warnings"] if str(plan) in each]
    assert "messages done above the offset" in warning
    assert f"drainer resume {plan} --" in warning
    assert "--concurrency 4" in warning
    assert named["notes"] == []
    assert not any("above the offset" in each for each in unknown["warnings"])
    assert "not known here" in unknown["notes"][0]
    moved.rename(plan)
    command(*command.resume_of(plan), *command.options())
    command.ensure_drained(topic)
    assert not link_to(plan).is_symlink(), "nothing is left to warn of"


def test_a_file_that_is_there_is_not_overwritten_and_the_hint_names_the_resume(
    command: Command, topic: Topic
) -> None:
    plan = command.kill_amid(topic, gate=command.gate, gated="25")
    before = plan.read_bytes()
    outcome = command.drain(topic, code=3)
    assert "unfinished" in outcome.error
    assert "drainer resume " in outcome.hint
    assert plan.name in outcome.hint
    other = ("--topic", command.topic(distinct(1)).name, "--plan", str(plan))
    assert topic.name in command.drain(topic, *other, code=3).error
    assert plan.read_bytes() == before
    precious = command.folder / "precious.json"
    precious.write_text('{"a": 1}')
    assert precious.name in command.drain(topic, "--plan", precious.name, code=3).error
    assert precious.read_text() == '{"a": 1}'
