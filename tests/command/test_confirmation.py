"""Nothing is touched before a confirmation, on a terminal or by --yes."""

from __future__ import annotations

import pytest

from command.conftest import OnTerminal, operations
from command.process import Command
from command.terminal import CTRL_C
from kafka.topic import Topic, eventually


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(300))


def run_words(command: Command, topic: Topic, **options: object) -> list[str]:
    return ["run", *command.what(topic), *command.options(**options), "--from", "earliest"]


def is_untouched(command: Command, topic: Topic) -> bool:
    return (
        command.left_behind == []
        and not command.record.path.exists()
        and command.committed(topic) == {0: None}
    )


def test_without_a_terminal_and_without_yes_it_refuses(command: Command, topic: Topic) -> None:
    outcome = command(*run_words(command, topic), "-o", "json", code=3)
    assert "--yes" in outcome.hint
    assert (outcome.answer["status"], outcome.answer["exit_code"]) == ("refused", 3)
    assert "[0, 300)" in outcome.err, "what would be confirmed is shown all the same"
    assert is_untouched(command, topic)


@pytest.mark.parametrize("typed", ["\n", CTRL_C])
def test_any_other_answer_than_yes_touches_nothing(
    command: Command, topic: Topic, on_terminal: OnTerminal, typed: str
) -> None:
    session = on_terminal(*run_words(command, topic))
    session.shows("[y/N]")
    session.types(typed)
    assert "nothing was touched" in session.ends(3)
    assert is_untouched(command, topic)


TALKS = """
import asyncio
import drainer

class Talks(drainer.Handler):
    async def handle(self, sub):
        if sub.message.offset == 0:
            print("x" * 300_000)  # More than a terminal keeps.
            await asyncio.sleep(1.5)  # A frame is drawn meanwhile.
        with open({done!r}, "a") as done:
            print(sub.message.offset, file=done)
"""


def test_a_terminal_that_nobody_reads_does_not_stop_a_drain(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    done = command.home / "done"
    handler = command.handler(TALKS.format(done=str(done)))
    words = ["run", *command.what(topic), "--handler", f"{handler}:Talks", "-c", "1", "--yes"]
    session = on_terminal(*words, "--from", "earliest")

    def all_done() -> bool:
        return done.exists() and len(done.read_text().splitlines()) == 300

    eventually(all_done, "all is handled though nobody reads", 40)
    session.ends(0)


def test_a_yes_drains_and_ctrl_c_stops_safely_and_prints_how_to_resume(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    session = on_terminal(*run_words(command, topic, gate=command.gate, gated="a-6"))
    session.shows("[y/N]")
    session.types("y\n")
    session.shows("sub-messages/s")
    session.types(CTRL_C)
    session.shows("Stopping")
    command.gate.touch()
    assert f"drainer resume {command.plan(topic).name}" in session.ends(4)
    options = command.options(gate=command.gate, gated="a-6")
    resumed = on_terminal("resume", command.plan(topic).name, *options)
    resumed.shows("Connect, load this handler and resume the drain?")
    resumed.types("y\n")
    assert resumed.ends(0).count("[y/N]") == 1, "it asks once"
    assert command.committed(topic) == {0: 300}
    assert command.record.repeats() == {}
