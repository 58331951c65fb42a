"""A dry run shows what a drain would do, makes every check of it, and touches nothing."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AdminClient

from command.conftest import distinct, operations
from command.process import Command
from drainer.kafka.lock import lock_group


def groups(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {group.group_id for group in admin.list_consumer_groups().result(15).valid}


def test_a_dry_run_touches_nothing(command: Command, bootstrap: str) -> None:
    topic = command.topic(operations(300))
    what = [*command.what(topic), *command.options(), "--from", "earliest", "--tune", "order=none"]
    outcome = command("run", *what, "--dry-run", "-o", "json")
    answer = outcome.answer
    assert (answer["status"], answer["exit_code"], answer["offsets"]) == ("dry-run", 0, 300)
    part = answer["partitions"]["0"]
    assert (part["start"], part["end"], part["committed"]) == (0, 300, None)
    assert len(answer["checks"]) >= 3
    assert answer["new_group"]
    assert answer["examples"]
    assert "300 offsets in 1 partition" in outcome.err
    assert answer["order"] == "none"
    assert "draining" not in outcome.err
    assert command.left_behind == []
    assert not command.record.path.exists()
    assert command.committed(topic) == {0: None}
    assert not groups(bootstrap) & {command.group(topic), lock_group(command.group(topic))}


@pytest.mark.long
def test_a_dry_run_of_a_resume_touches_nothing(command: Command) -> None:
    topic = command.topic(distinct(100))
    running = command.begin(topic, "-c", "4", pause_ms=5)
    command.wait_for(running, "done", 10)
    running.signal(signal.SIGINT)
    words = running.ends(4).resume_words
    before = {name: (command.folder / name).read_bytes() for name in command.left_behind}
    at, record = command.committed(topic), command.record.path.read_bytes()
    answer = command(*words, "--yes", "--dry-run", "-o", "json").answer
    assert answer["status"] == "dry-run"
    assert 0 < answer["offsets"] < 100
    assert {name: (command.folder / name).read_bytes() for name in command.left_behind} == before
    assert (command.committed(topic), command.record.path.read_bytes()) == (at, record)
    command(*words, "--yes")
    command.ensure_drained(topic, once=True)
