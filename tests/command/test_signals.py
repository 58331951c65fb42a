"""A stop is safe at the first request, at once at the second, and the plan is true by either."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from command.conftest import distinct
from command.process import BLOCKS_THE_LOOP, Command, Outcome
from command.record import every_place
from command.terminal import CTRL_C, TerminalSession
from drainer.kafka.lock import lock_group
from kafka.topic import Topic, eventually

AT_ONCE_S = 20.0  # of a machine that is busy; the grace is far longer
SHOW_CURSOR = "\x1b[?25h"


def watermark(plan: Path) -> int:
    found: int = json.loads(plan.read_text())["claims"]["all"]["0"]["watermark"]
    return found


def finishes(command: Command, topic: Topic, outcome: Outcome, places: set[object]) -> None:
    """Run the command that it printed, and ensure that it handles the rest."""
    command(*command.resume_of(outcome.resume_words[1]), *command.options())
    assert set(command.record.done()) == places
    command.record.check_order()


def test_a_first_signal_lets_what_is_in_flight_finish(command: Command) -> None:
    topic = command.topic(distinct(100))
    running = command.begin(topic, "-c", "4", gate=command.gate)
    command.wait_for(running, "begun", 4)
    running.signal(signal.SIGINT)
    running.prints("stopping: interrupted by SIGINT")
    assert len(command.record.begun()) == 4
    command.gate.touch()
    outcome = running.ends(4)

    assert sorted(command.record.done()) == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0)]
    assert command.committed(topic) == {0: 4}
    assert watermark(command.plan(topic)) == 4
    assert command.left_behind == [command.plan(topic).name]
    assert not command.cluster.group(lock_group(command.group(topic))).members
    finishes(command, topic, outcome, set(every_place(distinct(100))))
    assert command.record.repeats() == {}
    assert command.committed(topic) == {0: 100}


IN_THE_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")  # as a shell without job control
ON_SPARK = ("--engine", "spark", "--master", "local[1]")


@pytest.mark.parametrize(
    ("by", "number", "engine"),
    [
        (("nohup",), signal.SIGHUP, ()),
        pytest.param(("nohup",), signal.SIGHUP, ON_SPARK, marks=pytest.mark.long),
        pytest.param(IN_THE_BACKGROUND, signal.SIGINT, (), marks=pytest.mark.long),
        pytest.param(IN_THE_BACKGROUND, signal.SIGINT, ON_SPARK, marks=pytest.mark.long),
    ],
    ids=["nohup", "nohup, Spark", "background", "background, Spark"],
)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    command: Command, by: tuple[str, ...], number: signal.Signals, engine: tuple[str, ...]
) -> None:
    topic = command.topic(distinct(20))
    command.by = by
    running = command.begin(topic, *engine, gate=command.gate)
    command.wait_for(running, "begun", 1, within_s=200)
    running.signal(number)
    command.gate.touch()
    running.ends(0, within_s=200)
    assert command.committed(topic) == {0: 20}


def test_a_handler_that_blocks_the_loop_is_left_behind_with_an_answer(command: Command) -> None:
    topic = command.topic(distinct(5))
    running = command.begin(topic, "-o", "json", handler=BLOCKS_THE_LOOP, hang=1)
    command.wait_for(running, "begun", 1)
    running.signal(signal.SIGINT)
    running.signal(signal.SIGTERM)  # the kernel makes one of two that are the same
    outcome = running.ends(4, within_s=AT_ONCE_S)
    assert "blocked the event loop" in outcome.error
    assert "def handle" in outcome.hint
    assert outcome.answer == {
        "status": "interrupted",
        "exit_code": 4,
        "error": outcome.error,
        "hint": outcome.hint,
        "next": f"drainer {shlex.join(outcome.resume_words)}",
        "plan": command.plan(topic).name,
    }


def test_a_handler_that_blocks_the_loop_leaves_the_screen_as_it_was(command: Command) -> None:
    topic = command.topic(distinct(5))
    what = [*command.what(topic, BLOCKS_THE_LOOP), *command.options(hang=1)]
    words = ["run", *what, "--from", "earliest", "--yes"]
    with TerminalSession(words, command.folder, command.env) as session:
        session.shows("sub-messages/s")
        eventually(lambda: bool(command.record.begun()), "it is in the handler", 30)
        session.types(CTRL_C)
        session.signal(signal.SIGTERM)
        seen = session.ends(4)
    end = seen[seen.rindex("Draining") :]
    assert SHOW_CURSOR in end
    assert "blocked the event loop" in end
    assert f"drainer resume {command.plan(topic).name}" in end


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("loading", "printed"),
    [
        ("drainer.cli.run", "interrupted before the command began: nothing was touched\n"),
        ("drainer.operations.start", "■ interrupted\n"),  # The command loads that when it begins.
    ],
)
def test_a_signal_while_the_command_still_loads_is_answered(
    name: str, loading: str, printed: str
) -> None:
    """The code of modules is run as ``dataclass`` runs the code that it makes."""
    words = ["drainer", "run", "-t", "t", "-g", "g", "-H", "count", "-b", "127.0.0.1:9", "--yes"]
    code = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{loading}":
            exec("os.kill(os.getpid(), signal.{name})")
sys.meta_path.insert(0, Finder())
sys.argv = {words}
from drainer.cli import main
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 4
    assert ended.stderr == printed


@pytest.mark.parametrize(
    ("code", "end"),
    [(4, "drainer resume"), (0, "Drained")],
    ids=["stopped", "done"],
)
def test_no_signal_after_the_summary_changes_how_the_command_ends(
    command: Command, code: int, end: str
) -> None:
    topic = command.topic(distinct(20))
    running = command.begin(topic, "-c", "4", "-o", "json", gate=command.gate)
    command.wait_for(running, "begun", 1)
    if code == 4:
        running.signal(signal.SIGINT)
        running.prints("stopping")
    command.gate.touch()
    running.prints(end)

    while running.running:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with suppress(ProcessLookupError):
                running.signal(number)

    assert running.ends(code).answer["exit_code"] == code


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_before_the_drain_began_ends_the_command_at_once(
    command: Command, number: signal.Signals
) -> None:
    """The command waits for the lock of another drain."""
    topic = command.topic(distinct(20))
    first = command.begin(topic, "-X", "session.timeout.ms=30000", gate=command.gate)
    command.wait_for(first, "begun", 1)
    first.kill()
    copy = shutil.copy(command.plan(topic), command.folder / "copy.json")
    waiting = command.start(*command.resume_of(copy), *command.options())
    waiting.prints("to see whether it is alive")

    waiting.signal(number)

    ended = waiting.ended(AT_ONCE_S)
    assert ended.code == 4
    assert "with all options that you gave" in " ".join((ended.out + ended.err).split())
