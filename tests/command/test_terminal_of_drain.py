"""The terminal that a drain runs on, and the commands that it runs when it is over."""

from __future__ import annotations

import json
import signal

import pytest

from command.conftest import OnTerminal, operations
from command.process import Command
from kafka.topic import Topic, eventually

# A shell with job control, which has the terminal in front.
IN_THE_BACKGROUND = ("setsid", "--ctty", "sh", "-c", 'set -m; "$@" & wait $!', "sh")


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(300))


def words(command: Command, topic: Topic, *more: str, **options: object) -> list[str]:
    what = [*command.what(topic), *command.options(**options)]
    return ["run", *what, "--from", "earliest", "--yes", *more]


def test_what_is_typed_spoils_no_view_and_the_terminal_is_given_back(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    session = on_terminal(*words(command, topic, "-c", "4", gate=command.gate, gated="a-6"))
    before = session.modes
    session.shows("Ctrl-C stops safely")
    assert session.modes != before, "there is no echo"
    session.types("drainer stop ps+s\n")
    watch = on_terminal("watch", str(command.plan(topic)))
    modes = watch.modes
    watch.shows("Draining")
    assert watch.modes != modes, "there is no echo"
    watch.types("qq\nqq")
    watch.signal(signal.SIGINT)
    assert "qq" not in watch.ends(0)
    assert watch.modes == modes
    session.types("\x03")  # The terminal makes a SIGINT of it.
    session.shows("Stopping: ")
    command.gate.touch()
    seen = session.ends(4)
    assert "ps+s" not in seen
    assert session.modes == before
    command.resume(topic)
    assert command.record.repeats() == {}
    command.record.check_order()


@pytest.mark.long
def test_the_terminal_is_given_back_when_it_goes_away(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    session = on_terminal(*words(command, topic, "-c", "4", gate=command.gate))
    before = session.modes
    session.shows("Ctrl-C stops safely")
    session.signal(signal.SIGHUP)  # as a lost ssh session sends
    command.gate.touch()
    session.ends(4)
    assert session.modes == before
    command.resume(topic)
    command.ensure_drained(topic, once=True)


@pytest.mark.long
def test_a_drain_in_the_background_is_not_stopped_by_its_terminal(
    command: Command, topic: Topic, on_terminal: OnTerminal
) -> None:
    """To set its terminal would stop it."""
    session = on_terminal(*words(command, topic, pause_ms=2), by=IN_THE_BACKGROUND)
    session.shows("Ctrl-C stops safely")
    session.types("ps")
    assert "stopping" not in session.ends(0)
    command.record.check_order()


def test_commands_run_once_when_the_drain_will_be_late_and_at_its_end(
    command: Command, topic: Topic
) -> None:
    late, printed, status = (command.home / name for name in ("late", "printed", "status"))
    hook = f"cat > {printed}; echo $DRAINER_STATUS > {status}; echo hook-output; exit 3"
    set_late = f"on-late=cat >> {late}; echo >> {late}"
    hooks = ("--deadline", "1s", "--tune", set_late, "--tune", f"on-end={hook}")
    running = command.begin(topic, *hooks, "-o", "json", gate=command.gate)
    eventually(lambda: late.exists() and late.read_text().endswith("\n"), "it is reported")
    command.gate.touch()
    outcome = running.ends(0)
    [line] = late.read_text().strip().splitlines()
    assert json.loads(line)["deadline"]["missed"] is True
    assert json.loads(printed.read_text())["sub_messages"]["done"] == 600
    assert "--tune on-end failed with exit code 3" in outcome.err
    assert "hook-output" in outcome.err
    assert outcome.answer["exit_code"] == 0
    assert status.read_text() == "done\n"
