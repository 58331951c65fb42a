"""``--report``: the page of a drain, also when its disk is full in the end."""

from __future__ import annotations

from command.conftest import operations
from command.process import Command


def test_a_drain_writes_its_report_and_says_where(command: Command) -> None:
    topic = command.topic(operations(300), partitions=2)
    outcome = command.drain(topic, "--report", "r.html", "-o", "json")
    assert outcome.answer["status"] == "done"
    path = command.folder / "r.html"
    assert f"report        {path}" in outcome.err
    page = path.read_text()
    assert topic.name in page
    assert "600 messages, 1,200 sub-messages" in page
