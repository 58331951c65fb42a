"""``--report``: the page of a drain, also when its disk is full in the end."""

from __future__ import annotations

import subprocess

from command.conftest import MakeTopic, operations
from command.process import Command
from command.test_plan_place import fill, mount


def test_a_drain_writes_its_report_and_says_where(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(operations(300), partitions=2)
    outcome = command.drain(topic, "--report", "r.html", "--json")
    assert outcome.answer["status"] == "done"
    path = command.folder / "r.html"
    assert f"report        {path}" in outcome.err
    page = path.read_text()
    assert topic.name in page
    assert "600 messages, 1,200 sub-messages" in page


def test_a_report_that_can_not_be_written_in_the_end_is_told_and_changes_nothing(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(operations(10))
    full = command.folder / "full"
    full.mkdir()
    mount(full, "-t", "tmpfs", "-o", "size=64k", "tmpfs")
    try:
        fill(full)
        outcome = command.drain(topic, "--report", "full/r.html")
        assert not (full / "r.html").exists()
    finally:
        subprocess.run(["umount", "--lazy", full], check=True)
    assert "warning: the report" in outcome.err
    assert "No space left on device" in outcome.err
    assert "Drained: 10 messages" in outcome.err
