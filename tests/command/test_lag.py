"""`drainer lag` as a process: the worst group first, an exit code, and the next command."""

from __future__ import annotations

import shlex

from command.conftest import distinct
from command.process import Command


def test_a_group_that_is_too_far_behind_fails_the_check_and_the_next_command_says_more(
    command: Command,
) -> None:
    topic = command.topic(distinct(30), partitions=2)
    group, other = command.group(topic), f"{command.group(topic)}-other"
    command.cluster.alter_committed(group, topic.name, {0: 30})
    command.cluster.alter_committed(other, topic.name, {0: 30, 1: 30})
    words = ["lag", "-b", command.bootstrap, "--for", "100ms"]

    failed = command(*words, "-g", f"{group}*", "--max-behind", "29", "-o", "json", code=7)

    found = failed.answer
    assert (found["status"], found["exit_code"]) == ("failed", 7)
    assert [each["group"] for each in found["groups"]] == [group, other]
    assert [each["verdict"] for each in found["groups"]] == ["not catching up", "keeping up"]
    assert [each["untouched"] for each in found["groups"]] == [1, 0]
    assert "2 groups: 1 not catching up, 1 keeping up" in failed.err
    closer = command(*shlex.split(found["next"])[1:], "--for", "100ms")
    assert closer.out.startswith(f"{group}: 30 offsets (")
    assert "no committed offset on 1 partition with records" in closer.out
    inspected = command(*closer.way_out("next"))
    assert "30 messages behind" in inspected.out
    command(*words, "-g", group, "--max-behind", "30")
    command(*words, "-g", group, "--max-behind", "1d")
    command(*words, "-g", group, "--max-behind", "0s", code=7)
    assert command.left_behind == []


def test_a_misspelt_group_is_refused_with_similar_names(command: Command) -> None:
    topic = command.topic(distinct(3))
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 3})

    refused = command("lag", "-b", command.bootstrap, "-g", f"{command.group(topic)}x", code=3)

    assert f"did you mean {command.group(topic)}" in refused.error
