"""Letters that the real libraries write today are those that were recorded, and are redriven."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from command.process import Command
from command.test_example_services import free_port
from drainer.letters.reading import read_letters
from kafka.topic import Topic
from letters.foreign_letters import Record, recorded, write
from letters.libraries import connect_letters, spring_letters, streams_letters, without_traces

pytestmark = pytest.mark.long
HANDLER = """
import drainer

class Note(drainer.Handler):
    def open(self, context):
        self.path = context.options["done"]

    def handle(self, sub):
        with open(self.path, "a") as file:
            print(sub.id, sub.payload, file=file)
"""
NAMES = {"spring": "orders.DLT", "streams": "streams.dlq", "connect": "connect.dlq"}
SOURCES = {"streams": "sin", "connect": "csrc"}


@contextmanager
def topic(command: Command, name: str) -> Iterator[Topic]:
    made = Topic(command.bootstrap, name)
    try:
        yield made
    finally:
        made.delete()


@pytest.mark.parametrize("tool", NAMES)
def test_what_a_library_writes_is_as_recorded_and_is_redriven(
    command: Command, tmp_path: Path, tool: str
) -> None:
    expected = recorded(tool)
    with ExitStack() as topics:
        letters = topics.enter_context(topic(command, NAMES[tool]))
        if tool in SOURCES:
            source = topics.enter_context(topic(command, SOURCES[tool]))
            own = [(each, [h for h in each.headers if h[0] == "trace"]) for each in expected]
            write(source, [Record(each.key, each.value, 0, headers) for each, headers in own])
        match tool:
            case "spring":
                spring_letters(command.bootstrap, letters)
            case "streams":
                streams_letters(command.bootstrap, letters, tmp_path)
            case "connect":
                connect_letters(command.bootstrap, letters, tmp_path, free_port())
        written = [
            Record(each.key, each.value, 0, list(each.headers))
            for each in read_letters(command.cluster, letters.name)
        ]
        assert without_traces(written) == without_traces(expected)

        where = ["-b", command.bootstrap, "--dead-letter-topic", letters.name]
        listed = command("dead", "list", *where, "-o", "json").answer
        assert listed["by_reason"] == {tool: 2}
        handler, done = command.handler(HANDLER), tmp_path / "done"
        command("redrive", *where, "--handler", handler, "--set", f"done={done}", "--yes")
        assert [line.partition(" ")[2] for line in done.read_text().splitlines()] == [
            str(each.value) for each in expected
        ]
        assert command("dead", "list", *where, "-o", "json").answer["outstanding"] == 0
