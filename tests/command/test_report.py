"""``--report``: the page of a drain, also when its disk is full in the end."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from pathlib import Path

from command.conftest import MakeTopic, operations
from command.process import Command
from command.test_plan_place import fill, mount

LOADS = {"script", "img", "iframe", "object", "embed"}


class Reader(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add("data" if ("type", "application/json") in attrs else tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_a_drain_writes_its_report_and_says_where(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(operations(300), partitions=2)
    outcome = command.drain(topic, "--report", "r.html", "--json")
    assert outcome.answer["status"] == "done"
    path = command.folder / "r.html"
    assert f"report        {path}" in outcome.err
    read = Reader(path)
    assert not LOADS & read.tags
    assert f"Drain of {topic.name} for group {command.group(topic)} ✓ Drained" in read.text
    assert "messages 600 600 0 0 0" in read.text
    assert "sub-messages 1,200 1,200 0 0 0" in read.text
    assert "0 0 300 300 300 ✓" in read.text


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
    assert "can't be written: No space left on device" in outcome.err
    assert "Drained: 10 messages" in outcome.err
