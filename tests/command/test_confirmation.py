"""Nothing is touched before a person said yes, on a terminal or with --yes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from command.conftest import MakeTopic, committed, operations
from command.process import FAST, Command
from command.terminal import CTRL_C, CTRL_D, TerminalSession
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic

OnTerminal = Callable[..., TerminalSession]


@pytest.fixture
def on_terminal(command: Command) -> Iterator[OnTerminal]:
    with ExitStack() as sessions:

        def start(*words: str) -> TerminalSession:
            return sessions.enter_context(TerminalSession(list(words), command.folder, command.env))

        yield start


@pytest.fixture
def topic(make_topic: MakeTopic) -> Topic:
    return make_topic(operations(300))


def run_words(command: Command, topic: Topic, **options: object) -> list[str]:
    return ["run", *command.what(topic), *command.options(**options), "--from", "earliest"]


def is_untouched(command: Command, topic: Topic, cluster: Cluster) -> bool:
    return (
        command.left_behind == []
        and not command.record.path.exists()
        and committed(cluster, topic) == {0: None}
    )


def test_without_a_terminal_and_without_yes_it_refuses(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    outcome = command(*run_words(command, topic), code=3)
    assert "--yes" in outcome.hint
    assert "[0, 300)" in outcome.err, "what would be confirmed is shown all the same"
    assert is_untouched(command, topic, cluster)


def test_the_refusal_is_an_object_with_json(command: Command, topic: Topic) -> None:
    answer = command(*run_words(command, topic), "--json", code=3).answer
    assert answer["status"] == "refused"
    assert answer["exit_code"] == 3
    assert "--yes" in answer["hint"]


@pytest.mark.parametrize("typed", ["\n", CTRL_C, CTRL_D])
def test_any_other_answer_than_yes_touches_nothing(
    command: Command, topic: Topic, cluster: Cluster, on_terminal: OnTerminal, typed: str
) -> None:
    session = on_terminal(*run_words(command, topic))
    session.shows("[y/N]")
    session.types(typed)
    assert "nothing was touched" in session.ends(3)
    assert is_untouched(command, topic, cluster)


def test_yes_on_the_terminal_drains(
    command: Command, topic: Topic, cluster: Cluster, on_terminal: OnTerminal
) -> None:
    session = on_terminal(*run_words(command, topic))
    session.shows("[y/N]")
    session.types("y\n")
    assert "Drained" in session.ends(0)
    assert committed(cluster, topic) == {0: 300}


def test_ctrl_c_on_the_live_view_stops_safely_and_says_how_to_resume(
    command: Command, topic: Topic, cluster: Cluster, on_terminal: OnTerminal
) -> None:
    session = on_terminal(
        *run_words(command, topic, gate=command.gate, gated="a-6"), "--yes", *FAST
    )
    session.shows("sub-messages/s")
    session.types(CTRL_C)
    session.shows("stopping")
    command.gate.touch()
    assert f"drainer resume {command.plan(topic).name}" in session.ends(4)
    command.resume(topic)
    assert committed(cluster, topic) == {0: 300}
    assert command.record.repeats() == {}


def test_a_terminal_that_goes_away_is_no_reason_to_stop_untrue(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    """A lost ssh session sends SIGHUP; what is then on the disk must be enough to go on."""
    session = on_terminal(*run_words(command, topic, pause_ms=5), "--yes", "-c", "3", *FAST)
    session.shows("sub-messages/s")
    session.signal(signal.SIGHUP)
    session.ended()
    command.resume(topic)
    assert len(set(command.record.done())) == 600
    command.record.check_order()


def test_resume_asks_too(command: Command, topic: Topic, cluster: Cluster) -> None:
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", 1)
    running.kill()
    before = committed(cluster, topic)
    outcome = command("resume", str(command.plan(topic)), *command.options(), code=3)
    assert "--yes" in outcome.hint
    assert committed(cluster, topic) == before
    assert command.record.done() == []
