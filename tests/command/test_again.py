"""A range again, by ``--no-commit``: beside the group's consumers, and without its offsets."""

from __future__ import annotations

import pytest

from command.conftest import distinct, is_refused
from command.process import Command
from drainer.kafka.lock import lock_group
from kafka.topic import eventually

RANGE = ("--from", "10", "--until", "40", "--no-commit")


def offsets(command: Command) -> set[int]:
    return {offset for _, offset, _ in command.record.done()}


def test_beside_live_consumers_a_range_is_drained_again_killed_and_resumed(
    command: Command,
) -> None:
    topic = command.topic(distinct(50))
    group = command.group(topic)
    command.cluster.alter_committed(group, topic.name, {0: 45})
    member = topic.live_member(group, "checkout-7")
    what = [*command.what(topic), *command.options(), *RANGE]
    looked = command("inspect", *command.what(topic), *RANGE, "-o", "json").answer
    assert [looked["partitions"]["0"][name] for name in ("start", "end")] == [10, 40]
    assert looked["remarks"] == []
    try:
        unconfirmed = command("run", *what, code=3)
        assert "checkout-7" in unconfirmed.err
        assert "--yes" in unconfirmed.hint
        is_refused(command, unconfirmed)

        pauses = command.options(pause_ms=500)
        running = command.start("run", *what, "--yes", *pauses, "-c", "4")
        command.wait_for(running, "done", 5)
        locks = [lock_group(group), lock_group(group, commits=False)]
        assert [len(command.cluster.group(each).members) for each in locks] == [0, 1]
        running.kill()
        plan = command.folder / next(n for n in command.left_behind if n.endswith(".plan.json"))
        resumed = command(*command.resume_of(plan), "-o", "json", *command.options())
    finally:
        member.close()

    assert plan.name != command.plan(topic).name
    assert "checkout-7" in resumed.err
    done = resumed.answer
    assert (done["commits"], done["partitions"]["0"]["committed"]) == (False, None)
    assert offsets(command) == set(range(10, 40))
    assert command.committed(topic) == {0: 45}
    assert "committed nothing" in command("plan", "undo", str(plan), "--yes", code=3).error


@pytest.mark.long
def test_two_such_drains_of_one_group_refuse_each_other_and_name_one_that_commits(
    command: Command,
) -> None:
    topic = command.topic(distinct(50))
    what = [*command.what(topic), "--no-commit"]
    for words in (["run", *what, *command.options(), "--yes"], ["inspect", *what]):
        assert "--from @TIME" in command(*words, code=2).hint
    again = ["run", *command.what(topic), *command.options(gate=command.gate), *RANGE]
    running = command.start(*again, "--yes")
    place = lock_group(command.group(topic), commits=False)
    eventually(lambda: bool(command.cluster.group(place).members), "it has its lock", 30)

    refused = command(*again, "--yes", "--plan", "other.plan.json", code=3)

    assert "holds the lock" in refused.error
    commits = command.begin(topic, gate=command.gate)
    command.wait_for(commits, "begun", 30 + 5)
    beside = command(*again, "--plan", "other.plan.json", code=3)
    assert "drainer-" in beside.err
    assert "is in use" in beside.err
    command.gate.touch()
    assert "unchanged" in running.ends(0).out
    commits.ends(0)
    assert command.committed(topic) == {0: 50}


@pytest.mark.long
def test_on_spark_a_range_is_drained_again_without_commits_too(command: Command) -> None:
    topic = command.topic(distinct(50))
    what = [*command.what(topic), *command.options(), *RANGE, "--yes"]

    found = command("run", *what, "--engine", "spark", "--master", "local[2]", "-o", "json").answer

    assert (found["status"], found["commits"]) == ("done", False)
    assert offsets(command) == set(range(10, 40))
    assert command.committed(topic) == {0: None}
