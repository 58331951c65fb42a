"""Drains that run are found, watched, changed, paused and stopped from other processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from command.conftest import distinct, operations, same
from command.process import BLOCKS_THE_LOOP, ON_THREADS, Command, Outcome
from command.terminal import TerminalSession
from command.test_dead_letters import letters_of
from drainer.control.place import socket_name
from drainer.host.os_errors import user_at_host
from drainer.kafka.lock import lock_group
from kafka.topic import Topic, eventually
from privileges import UNPRIVILEGED, for_root

WITHIN_S = 1.0  # from an answer on, a change holds everywhere
ON_SPARK_WITHIN_S = 2.0
STILL_S = 0.5
AT_ONCE_S = 20.0  # of a machine that is busy; the grace is far longer
HUNG_UP_S = 10.0
ME = user_at_host(os.geteuid())
ON_SPARK = ("--engine", "spark", "--master", "local[2]")


# The answers to a process that is not drainer.
REQUESTS = """
import socket, sys
found = []
for request in ("GET /status", "GET /watch", "POST /stop"):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        try:
            connection.sendall(f"{request} HTTP/1.0\\r\\n\\r\\n".encode())
            found += connection.makefile("rb")
        except ConnectionError:
            pass
print(found)
"""


def steer(
    command: Command, topic: Topic, what: str, *more: str, code: int = 0, **env: str
) -> Outcome:
    """``drainer WHAT PLAN MORE``."""
    return command(what, str(command.plan(topic)), *more, code=code, env=env)


def listed(command: Command, topic: Topic, **env: str) -> dict[str, Any] | None:
    """The drain of a topic as ``drainer ps`` has it; root sees those of others as well."""
    drains = command("ps", "-o", "json", env=env).answer["drains"]
    (found,) = [each for each in drains if each["topic"] == topic.name] or [None]
    assert found is None or isinstance(found, dict)
    return found


def is_in_state(command: Command, topic: Topic, state: str) -> dict[str, Any]:
    """Wait until ``ps`` lists the drain in that state; its row."""
    found: list[dict[str, Any]] = []

    def is_so() -> bool:
        each = listed(command, topic)
        found[:] = [] if each is None else [each]
        return each is not None and each["state"] == state

    eventually(is_so, f"it is {state}")
    return found[0]


def history(command: Command, topic: Topic) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command.plan(topic).read_text())["history"]
    return found


def begun_between(command: Command, since_s: float, until_s: float) -> int:
    lines = command.record.lines()
    return sum(line.mark == "begun" and since_s < line.at_s < until_s for line in lines)


def goes_on_until(command: Command, at_s: float) -> float:
    """Wait until something was begun or done after that; when it was."""
    eventually(lambda: command.record.lines()[-1].at_s > at_s, "it goes on")
    return command.record.lines()[-1].at_s


def rests(command: Command) -> None:
    """Wait until no call is in flight, and none has begun for a while."""

    def is_so() -> bool:
        lines = command.record.lines()
        in_flight = sum(1 if line.mark == "begun" else -1 for line in lines)
        return not in_flight and time.monotonic() - lines[-1].at_s > STILL_S

    eventually(is_so, "nothing begins")


# --- ps


def test_ps_lists_a_killed_drain_with_how_to_resume_it_and_removes_its_socket(
    command: Command, open_folder: Path
) -> None:
    topic = command.topic(distinct(20))
    command.env["XDG_RUNTIME_DIR"] = str(open_folder)
    socket = open_folder / "drainer" / socket_name(command.plan(topic))
    running = command.begin(topic, "-c", "2", gate=command.gate, gated="19")
    command.wait_for(running, "done", 19)
    watcher = command.start("watch", str(command.plan(topic)))
    watcher.prints("draining")
    running.kill()
    ended = watcher.ends(4)
    assert "the drain's process is gone" in ended.error
    assert f"drainer resume {command.plan(topic)} --" in ended.hint
    assert socket.exists()
    assert "was killed, or still runs elsewhere" in steer(command, topic, "pause", code=3).error
    found = is_in_state(command, topic, "killed")
    assert (found["plan"], found["pid"]) == (str(command.plan(topic)), None)
    assert not socket.exists()

    assert " can be resumed" in command("ps").out
    _, verb, name, *options = shlex.split(found["resume"])
    assert (verb, name) == ("resume", command.plan(topic).name)
    assert ("--concurrency", "2") in zip(options[::2], options[1::2], strict=True)
    command.gate.touch()
    command(*command.resume_of(name), *options)
    assert listed(command, topic) is None
    assert not socket.exists()


# --- set


def test_what_is_set_holds_within_a_second_and_is_written_down(command: Command) -> None:
    topic = command.topic(operations(500, lanes=200))
    running = command.begin(topic, "--reason", "ticket 7", "-c", "20", pause_ms=20)
    command.wait_for(running, "done", 100)
    settings = ("concurrency=2", "rate=60/s", "max-failures=7", "--reason", "the DB team")
    outcome = steer(command, topic, "set", *settings)
    set_s = time.monotonic()
    for change in ("concurrency 20 → 2", "rate none → 60/s", "max-failures 50% → 7"):
        assert change in outcome.err
    in_force_s = set_s + WITHIN_S
    now_s = goes_on_until(command, in_force_s + WITHIN_S)
    assert command.record.most_at_once(in_force_s, now_s) <= 2
    assert 0 < begun_between(command, in_force_s, now_s) <= 60 * (now_s - in_force_s) + 5
    found = is_in_state(command, topic, "draining")
    assert (found["concurrency"], found["in_flight"] <= 2) == (2, True)

    faster = steer(command, topic, "set", "concurrency=100", "rate=none")
    assert "concurrency 2 → 100, rate 60/s → none" in faster.err
    running.ends(0)
    assert command.record.most_at_once(now_s, time.monotonic()) > 20
    command.ensure_drained(topic, once=True)
    plan = json.loads(command.plan(topic).read_text())
    assert plan["failures"]["max_failures"] == "7"
    assert plan["failures"]["rate"] is None
    begun, slower, faster_again, ended = plan["history"]
    assert (slower["what"], slower["by"], slower["reason"]) == ("changed", ME, "the DB team")
    assert (begun["reason"], faster_again["reason"], ended["what"]) == ("ticket 7", None, "ended")
    shown = command("plan", "history", str(command.plan(topic))).out
    for words in ("begun", "changed", ME, "concurrency 20 → 2", "reason: the DB team"):
        assert words in shown


# --- pause and unpause


def test_while_it_is_paused_nothing_begins_and_the_group_stays_its_own(command: Command) -> None:
    topic = command.topic(operations(150, lanes=100))
    running = command.begin(topic, "-c", "8", handler=ON_THREADS, pause_ms=20)
    command.wait_for(running, "done", 50)
    outcome = steer(command, topic, "pause", "--reason", "failover")
    paused_s = time.monotonic()
    assert f"paused by {ME}" in outcome.err
    assert "in flight" in outcome.err
    rests(command)
    found = is_in_state(command, topic, "paused")
    assert (found["in_flight"], found["paused"]["event"]["reason"]) == (0, "failover")

    def stands() -> int:
        whole = json.loads(command.plan(topic).read_text())["claims"]["all"]["0"]
        return int(whole["watermark"])

    done = len(command.record.done())
    eventually(lambda: command.committed(topic) == {0: stands()}, "what is done is committed")
    assert 0 < stands() <= done // 2
    assert command.cluster.group(lock_group(command.group(topic))).members
    assert f"paused by {ME}" in steer(command, topic, "pause").err  # once more is no harm
    unpause_s = time.monotonic()
    assert begun_between(command, paused_s, unpause_s) == 0
    assert running.running
    assert "unpaused" in steer(command, topic, "unpause").err
    command.wait_for(running, "begun", done + 1)
    assert "the drain is not paused" in steer(command, topic, "unpause").err
    running.ends(0)
    command.ensure_drained(topic, once=True)
    done_with_it = [event["what"] for event in history(command, topic)]
    assert done_with_it == ["begun", "paused", "paused", "unpaused", "ended"]


# --- stop


def test_a_stopped_drain_prints_how_to_resume_it_as_it_was_set(command: Command) -> None:
    topic = command.topic(distinct(200))
    running = command.begin(topic, "-c", "4", gate=command.gate)
    command.wait_for(running, "begun", 4)
    steer(command, topic, "set", "concurrency=50", "grace=20s")
    command.wait_for(running, "begun", 50)
    stopping = command.start("stop", str(command.plan(topic)), "--reason", "lunch")
    running.prints(f"stopping: stopped by {ME}")
    assert is_in_state(command, topic, "stopping")["in_flight"] == 50
    refused = steer(command, topic, "set", "concurrency=60", code=3)
    assert "this drain is stopping" in refused.error
    command.gate.touch()

    ended = running.ends(4)
    outcome = stopping.ends(0)
    assert "stopping: 50 calls in flight" in outcome.err
    assert f"the drain has ended: stopped by {ME}" in outcome.out
    assert outcome.way_out("resume") == ended.resume_words
    assert " ".join(ended.resume_words).count("--concurrency 50") == 1
    assert " ".join(ended.resume_words).count("--tune grace=20s") == 1
    assert len(command.record.done()) == 50
    assert command.committed(topic) == {0: 50}
    last = history(command, topic)[-1]
    assert (last["what"], last["by"], last["reason"]) == ("ended", ME, "lunch")
    assert last["offsets"] == {"0": 50}

    assert "concurrency 50" in command(*ended.resume_words, "--yes").err
    command.ensure_drained(topic, once=True)


@pytest.mark.long
def test_stop_now_ends_a_drain_whose_handler_blocks_the_loop(command: Command) -> None:
    topic = command.topic(distinct(5))
    blocks = command.begin(topic, handler=BLOCKS_THE_LOOP, hang=1)
    command.wait_for(blocks, "begun", 1)
    found = listed(command, topic)  # which needs no loop
    assert found is not None
    assert found["pid"] == blocks.pid
    outcome = steer(command, topic, "stop", "--now", code=4)
    ended = blocks.ends(4, within_s=AT_ONCE_S)
    assert "blocked the event loop" in ended.error
    assert ended.resume_words[:2] == ["resume", command.plan(topic).name]
    assert "the drain's process is gone" in outcome.error
    assert is_in_state(command, topic, "killed")
    command.resume(topic)
    command.ensure_drained(topic)


# --- watch


def test_watchers_see_how_it_ends_and_disturb_nothing(command: Command) -> None:
    topic = command.topic([*same(100), *operations(150, lanes=50)])  # a hot lane is named
    running = command.begin(topic, "-c", "8", gate=command.gate)
    is_in_state(command, topic, "draining")
    plan = str(command.plan(topic))
    killed, frozen, first, second = (command.start("watch", plan) for _ in range(4))
    with (
        TerminalSession(["watch", plan], command.folder, command.env) as screen,
        TerminalSession(["watch", plan], command.home, command.env) as elsewhere,
    ):
        elsewhere.shows(f"work/{command.plan(topic).name}")  # as it is typed there
        for watcher in (killed, frozen, first, second):
            watcher.prints(f"draining {topic.name} for group {command.group(topic)}")
        screen.shows(f"Draining {topic.name}")
        screen.shows("Ctrl-C leaves; the drain goes on")
        screen.shows("'hot' 99")
        killed.kill()
        frozen.signal(signal.SIGSTOP)
        steer(command, topic, "set", "concurrency=20", "--reason", "in a hurry")
        first.prints("concurrency 8 → 20 (in a hurry)")
        screen.shows("concurrency 8 → 20 (in a hurry)")
        gone = command.start("watch", plan, "-o", "json")
        gone.prints("draining")
        gone.signal(signal.SIGINT)
        gone.ends(0)
        assert running.running, "Ctrl-C ends the watching alone"
        command.gate.touch()
        opened_s = time.monotonic()
        running.ends(0)
        assert time.monotonic() - opened_s < HUNG_UP_S
        for watcher in (first, second):
            assert "the drain has ended: done" in watcher.ends(0).out
        assert "the drain has ended: done" in screen.ends(0)
    frozen.signal(signal.SIGCONT)
    frozen.ended()
    command.ensure_drained(topic, once=True)


# --- where it runs, and who may


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A runtime folder that all users may enter."""
    with TemporaryDirectory(prefix="run-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.mark.long
@for_root
def test_another_user_is_not_answered(command: Command, open_folder: Path) -> None:
    topic = command.topic(distinct(20))
    command.env["XDG_RUNTIME_DIR"] = str(open_folder)
    running = command.begin(topic, "-c", "2", gate=command.gate)
    command.wait_for(running, "begun", 2)
    is_in_state(command, topic, "draining")
    folder = open_folder / "drainer"
    socket = folder / socket_name(command.plan(topic))
    assert (folder.stat().st_mode & 0o777, socket.stat().st_mode & 0o777) == (0o700, 0o600)

    stranger = ("setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups")

    command.by = stranger
    assert listed(command, topic) is None
    assert "as that user" in steer(command, topic, "stop", "--now", code=3).hint
    folder.chmod(0o755)
    socket.chmod(0o666)  # files that let everybody in
    assert "as that user" in steer(command, topic, "set", "concurrency=9", code=3).hint
    words = [*stranger, sys.executable, "-c", REQUESTS, str(socket)]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"[]\n"
    command.by = ()
    folder.chmod(0o700)
    assert is_in_state(command, topic, "draining")["concurrency"] == 2
    command.gate.touch()
    running.ends(0)
    command.ensure_drained(topic, once=True)


# --- Spark


@pytest.mark.long
def test_on_spark_a_drain_is_changed_paused_and_stopped_the_same_way(command: Command) -> None:
    topic = command.topic(operations(1_500, lanes=300))
    running = command.begin(topic, *ON_SPARK, "-c", "20", pause_ms=20)
    command.wait_for(running, "done", 50, within_s=200)
    assert is_in_state(command, topic, "draining")["engine"] == "spark"
    steer(command, topic, "set", "concurrency=4", "rate=150/s")
    in_force_s = time.monotonic() + ON_SPARK_WITHIN_S
    now_s = goes_on_until(command, in_force_s + WITHIN_S)
    assert command.record.most_at_once(in_force_s, now_s) <= 4
    assert 0 < begun_between(command, in_force_s, now_s) <= 150 * (now_s - in_force_s) + 10

    steer(command, topic, "pause")
    paused_s = time.monotonic()
    rests(command)
    eventually(lambda: is_in_state(command, topic, "paused")["in_flight"] == 0, "none in flight")
    assert command.cluster.group(lock_group(command.group(topic))).members
    assert begun_between(command, paused_s + WITHIN_S, time.monotonic()) == 0
    steer(command, topic, "unpause")
    steer(command, topic, "set", "concurrency=10", "rate=none")
    command.wait_for(running, "done", len(command.record.done()) + 100)
    outcome = steer(command, topic, "stop")
    ended = running.ends(4)
    assert outcome.way_out("resume") == ended.resume_words
    assert " ".join(ended.resume_words).count("--concurrency 10") == 1
    command.resume(topic, "--engine", "process", "-c", "50")
    command.ensure_drained(topic, once=True)


@pytest.mark.long
def test_on_spark_failures_are_handled_as_it_was_set_last(command: Command) -> None:
    topic = command.topic(['["a"]', '["a"]', *distinct(1_500)])
    gated = {"gate": command.gate, "gated": "a", "fail": "0/1/0"}
    halts = ("-c", "5", "--on-failure", "halt", "--retries", "0")
    running = command.begin(topic, *ON_SPARK, *halts, handler=ON_THREADS, pause_ms=20, **gated)
    command.wait_for(running, "done", 50, within_s=200)
    steer(command, topic, "set", "on-failure=dead-letter")
    goes_on_until(command, time.monotonic() + ON_SPARK_WITHIN_S)
    command.gate.touch()
    running.ends(6)
    (letter,) = letters_of(command, topic)
    assert letter.message_offset == 1
    assert command.committed(topic) == {0: 1_502}
    assert [event["what"] for event in history(command, topic)] == ["begun", "changed", "ended"]
    assert command.record.repeats() == {}
    command.record.check_order()


@pytest.mark.long
@pytest.mark.parametrize("handler", ["OnTheLoop", ON_THREADS, BLOCKS_THE_LOOP])
def test_on_spark_stop_now_does_not_wait_for_a_handler_that_hangs(
    command: Command, handler: str
) -> None:
    topic = command.topic(distinct(200))
    hangs = command.begin(
        topic, *ON_SPARK, "-c", "4", "--tune", "grace=50s", handler=handler, hang=1
    )
    command.wait_for(hangs, "begun", 1, within_s=200)
    is_in_state(command, topic, "draining")
    outcome = steer(command, topic, "stop", "--now")
    ended = hangs.ends(4, within_s=AT_ONCE_S)
    assert outcome.way_out("resume") == ended.resume_words
    command.resume(topic, "--engine", "process")
    command.ensure_drained(topic)
