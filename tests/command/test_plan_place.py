"""Places of a plan: folders that won't take it, full disks, and plans already there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from command.conftest import distinct, is_refused
from command.process import FAST, Command
from kafka.topic import Topic


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(50))


def mount(folder: Path, *words: str) -> None:
    mounted = subprocess.run(["mount", *words, folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"can't mount here: {mounted.stderr.decode().strip()}")


def test_a_plan_folder_that_is_not_there_is_refused(command: Command, topic: Topic) -> None:
    for words in (["--dry-run"], []):
        outcome = command.drain(topic, "--plan", "nowhere/plan.json", *words, code=3)
        assert "nowhere" in outcome.error
        assert "--plan" in outcome.hint
        is_refused(command, outcome)
    assert command.committed(topic) == {0: None}


def test_a_plan_folder_that_vanishes_while_draining_leaves_nothing_to_resume(
    command: Command, topic: Topic
) -> None:
    folder = command.folder / "plans"
    folder.mkdir()
    where = ["--plan", "plans/plan.json", "-c", "4", *FAST]
    running = command.begin(topic, *where, gate=command.gate)
    command.wait_for(running, "begun", 4)
    shutil.rmtree(folder)
    command.gate.touch()
    outcome = running.ends(8)
    assert "removed or moved" in outcome.error
    assert "drainer run" in outcome.hint
    assert "valid" not in outcome.err
    assert "resume: " not in outcome.out


@pytest.fixture
def interrupted(command: Command, topic: Topic) -> Topic:
    """A topic whose drain was killed in the middle."""
    running = command.begin(topic, *FAST, gate=command.gate, gated="25")
    command.wait_for(running, "done", 49)
    running.kill()
    return topic


def test_a_file_that_is_there_is_not_written_over_and_a_plan_says_how_to_resume(
    command: Command, interrupted: Topic
) -> None:
    before = command.plan(interrupted).read_bytes()
    outcome = command.drain(interrupted, code=3)
    assert "unfinished" in outcome.error
    assert "drainer resume " in outcome.hint
    assert outcome.hint.endswith(command.plan(interrupted).name)
    other = ("--topic", command.topic(distinct(1)).name, "--plan", str(command.plan(interrupted)))
    assert interrupted.name in command.drain(interrupted, *other, code=3).error
    assert command.plan(interrupted).read_bytes() == before
    precious = command.folder / "precious.json"
    precious.write_text('{"a": 1}')
    assert precious.name in command.drain(interrupted, "--plan", precious.name, code=3).error
    assert precious.read_text() == '{"a": 1}'


def test_a_missing_journal_is_reported_by_verify_and_resume(
    command: Command, interrupted: Topic
) -> None:
    plan = command.plan(interrupted)
    whole = command("plan", "verify", str(plan))
    assert "damaged or missing" not in whole.err
    for journal in command.folder.glob("*.journal-*"):
        journal.unlink()
    found = command("plan", "verify", str(plan), "-o", "json").answer
    assert "damaged or missing" in found["warnings"][0]
    command.gate.touch()
    assert "warning: the journal of" in command.resume(interrupted).err
