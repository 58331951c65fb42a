"""Fixtures for tests of the command: a folder to run it in, and values of messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from command.process import Command, Outcome
from command.terminal import TerminalSession
from drainer.kafka.cluster import Cluster

OnTerminal = Callable[..., TerminalSession]
# The source of a handler of documents, to which a test adds what `handle` does.
DOCUMENTS = """
import json
from drainer.handler import GiveUp, Handler
from drainer.message import SubMessage

class Documents(Handler):
    def open(self, context):
        self.path = context.options["done"]

    def split(self, message):
        found = json.loads(message.value)
        for document in found["documents"] if isinstance(found, dict) else found:
            yield SubMessage(str(document["id"]), document)

    def note(self, *words):
        with open(self.path, "a") as file:
            print(*words, file=file)
"""


def operations(count: int, *, lanes: int = 7) -> list[str]:
    """Values of messages: two operations each, over a few documents."""
    return [json.dumps([f"a-{n % lanes}", f"b-{n * 3 % lanes}"]) for n in range(count)]


def distinct(count: int, size: int = 0) -> list[str]:
    """Values of messages with one operation each, all on documents of their own."""
    return [json.dumps([f"{n:0{size or 1}}"]) for n in range(count)]


def same(count: int) -> list[str]:
    """Values of messages with one operation each, all on one document."""
    return ['["hot"]'] * count


def is_refused(command: Command, outcome: Outcome) -> None:
    """Ensure that nothing was handled, and that the way out is shown."""
    assert outcome.error
    assert outcome.hint
    assert outcome.out == ""
    assert not command.record.path.exists()


@pytest.fixture
def command(tmp_path: Path, cluster: Cluster) -> Iterator[Command]:
    made = Command(tmp_path, cluster)
    yield made
    made.close()


@pytest.fixture
def on_terminal(command: Command) -> Iterator[OnTerminal]:
    with ExitStack() as sessions:

        def start(*words: str, by: tuple[str, ...] = ()) -> TerminalSession:
            session = TerminalSession(list(words), command.folder, command.env, by)
            return sessions.enter_context(session)

        yield start
