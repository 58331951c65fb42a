"""Drains that run are found, watched, changed, paused and stopped from other processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from command.conftest import (
    MakeTopic,
    OnTerminal,
    committed,
    distinct,
    is_refused,
    operations,
    same,
)
from command.process import BLOCKS_THE_LOOP, FAST, ON_THREADS, Command, Outcome, Running
from command.record import every_place
from command.terminal import TerminalSession
from command.test_dead_letters import letters_of
from drainer.control.place import socket_name
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import lock_group
from drainer.ownership import user_at_host
from kafka.topic import Topic, eventually
from privileges import NOBODY

WITHIN_S = 1.0  # from an answer on, a change holds everywhere
ON_SPARK_WITHIN_S = 2.0
STILL_S = 0.5
AT_ONCE_S = 20.0  # of a machine that is busy; the grace is far longer
HUNG_UP_S = 10.0
ME = user_at_host(os.geteuid())
READ_ONLY = {"DRAINER_READ_ONLY": "1"}
WITH_REASON = {"DRAINER_REQUIRE_REASON": "1"}
ON_SPARK = (*FAST, "--engine", "spark", "--master", "local[2]")


# What a process that is not drainer is answered.
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
    """Waits until ``ps`` says so, and gives what it says."""
    found: list[dict[str, Any]] = []

    def holds() -> bool:
        each = listed(command, topic)
        found[:] = [] if each is None else [each]
        return each is not None and each["state"] == state

    eventually(holds, f"it is {state}")
    return found[0]


def history(command: Command, topic: Topic) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command.plan(topic).read_text())["history"]
    return found


def begun_between(command: Command, since_s: float, until_s: float) -> int:
    lines = command.record.lines()
    return sum(line.mark == "begun" and since_s < line.at_s < until_s for line in lines)


def most_at_once(command: Command, since_s: float, until_s: float) -> int:
    """The most calls in flight at a moment in between."""
    running = most = 0
    for line in command.record.lines():
        if line.at_s >= until_s:
            break
        running += 1 if line.mark == "begun" else -1
        if line.at_s > since_s:
            most = max(most, running)
    return most


def goes_on_until(command: Command, at_s: float) -> float:
    """Waits until something was begun or done after that; gives when."""
    eventually(lambda: command.record.lines()[-1].at_s > at_s, "it goes on")
    return command.record.lines()[-1].at_s


def rests(command: Command) -> None:
    """Waits until nothing is in the handler, and nothing has been begun for a while."""

    def holds() -> bool:
        lines = command.record.lines()
        in_flight = sum(1 if line.mark == "begun" else -1 for line in lines)
        return not in_flight and time.monotonic() - lines[-1].at_s > STILL_S

    eventually(holds, "nothing begins")


def is_whole(command: Command, messages: list[str]) -> None:
    """All is done, in order, and once."""
    assert set(command.record.done()) == every_place(messages)
    assert command.record.repeats() == {}
    command.record.check_order()


# --- ps


def test_ps_lists_a_drain_while_it_runs(command: Command, make_topic: MakeTopic) -> None:
    messages = distinct(40)
    topic = make_topic(messages)
    running = command.begin(topic, "-c", "4", gate=command.gate, gated="39")
    command.wait_for(running, "done", 39)
    eventually(lambda: (listed(command, topic) or {}).get("done", 0) > 0.9, "it has done most")
    found = is_in_state(command, topic, "draining")
    assert (found["plan"], found["pid"]) == (str(command.plan(topic)), running.pid)
    assert (found["group"], found["engine"]) == (command.group(topic), "process")
    assert (found["in_flight"], found["concurrency"], found["paused"]) == (1, 4, None)
    assert found["done"] == pytest.approx(39 / 40)
    (row,) = [line for line in command("ps").out.splitlines() if topic.name in line]
    assert all(word in row for word in (command.plan(topic).name, "draining", str(running.pid)))
    command.gate.touch()
    running.ends(0)
    assert listed(command, topic) is None


def test_the_socket_of_a_killed_drain_hinders_nothing_and_ps_removes_it(
    command: Command, make_topic: MakeTopic, runtime_folder: Path
) -> None:
    topic = make_topic(distinct(20))
    socket = runtime_folder / "drainer" / socket_name(command.plan(topic))
    first = command.begin(topic, "-c", "2", gate=command.gate)
    command.wait_for(first, "begun", 2)
    first.kill()
    assert socket.exists()
    refused = steer(command, topic, "pause", code=3)
    assert "none of your drains" in refused.error

    resumed = ["resume", str(command.plan(topic)), "--yes", "-c", "2"]
    second = command.start(*resumed, *command.options(gate=command.gate))
    command.wait_for(second, "begun", 4)
    assert is_in_state(command, topic, "draining")["pid"] == second.pid
    second.kill()
    assert socket.exists()
    assert is_in_state(command, topic, "killed")["pid"] is None
    assert not socket.exists()

    command.gate.touch()
    command.resume(topic)
    assert set(command.record.done()) == every_place(distinct(20))
    assert not socket.exists()


def test_ps_lists_what_was_killed_or_stopped_in_this_folder_and_how_to_resume_it(
    command: Command, make_topic: MakeTopic
) -> None:
    killed, stopped = make_topic(distinct(20)), make_topic(distinct(20))
    for topic in (killed, stopped):
        running = command.begin(topic, *FAST, "-c", "2", gate=command.gate, gated="19")
        command.wait_for(running, "done", 19)
        is_in_state(command, topic, "draining")
        if topic is killed:
            is_written(command.plan(topic))  # ps does not read the journal
            running.kill()
    steer(command, stopped, "stop", "--now")
    running.ends(4)
    for topic, state in ((killed, "killed"), (stopped, "stopped")):
        found = is_in_state(command, topic, state)
        assert (found["plan"], found["pid"]) == (str(command.plan(topic)), None)
        assert 0.9 < found["done"] < 1
    said = command("ps").out
    assert "2 in this folder can be resumed" in said
    for topic in (killed, stopped):
        resume = f"drainer resume {command.plan(topic).name}"
        assert f"resume: {resume}\n" in said
        command.gate.touch()
        command(*resume.split()[1:], "--yes", *command.options(gate=command.gate))
        assert listed(command, topic) is None


def is_written(plan: Path) -> None:
    """Returns once the plan has all that was done before."""

    def generation() -> int:
        return int(json.loads(plan.read_text())["generation"])

    enough = generation() + 2  # the next one may have begun already
    eventually(lambda: generation() >= enough, f"{plan} is written")


# --- set


def test_what_is_set_holds_within_a_second_and_is_written_down(
    command: Command, make_topic: MakeTopic
) -> None:
    messages = operations(500, lanes=200)
    topic = make_topic(messages)
    running = command.begin(topic, *FAST, "-c", "20", pause_ms=20)
    command.wait_for(running, "done", 100)
    settings = ("concurrency=2", "rate=60/s", "max-failures=7")
    said = steer(command, topic, "set", *settings, "--reason", "the DB team asked")
    set_s = time.monotonic()
    for change in ("concurrency 20 → 2", "rate none → 60/s", "max-failures 50% → 7"):
        assert change in said.err
    holds_s = set_s + WITHIN_S
    now_s = goes_on_until(command, holds_s + WITHIN_S)
    assert most_at_once(command, holds_s, now_s) <= 2
    assert 0 < begun_between(command, holds_s, now_s) <= 60 * (now_s - holds_s) + 5
    found = is_in_state(command, topic, "draining")
    assert (found["concurrency"], found["in_flight"] <= 2) == (2, True)

    faster = steer(command, topic, "set", "concurrency=100", "rate=none")
    assert "concurrency 2 → 100, rate 60/s → none" in faster.err
    running.ends(0)
    assert most_at_once(command, now_s, time.monotonic()) > 20
    is_whole(command, messages)
    plan = json.loads(command.plan(topic).read_text())
    assert plan["failures"]["max_failures"] == "7"
    assert plan["failures"]["rate"] is None
    _, slower, faster_again, ended = plan["history"]
    assert (slower["what"], slower["by"], slower["reason"]) == ("changed", ME, "the DB team asked")
    assert (ended["what"], faster_again["reason"]) == ("ended", None)
    shown = command("plan", "history", str(command.plan(topic))).out
    for words in ("begun", "changed", ME, "concurrency 20 → 2", "reason: the DB team asked"):
        assert words in shown


def test_a_set_with_one_wrong_part_changes_nothing(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(distinct(20))
    running = command.begin(topic, *FAST, "-c", "2", gate=command.gate)
    is_in_state(command, topic, "draining")
    for wrong, named in (
        ("rate=banana", "rate"),
        ("cocurrency=3", "cocurrency"),
        ("max-failures=", "max-failures"),
        ("retries=-1", "retries"),
        ("group=other", "group"),
        ("on-failure=panic", "on-failure"),
    ):
        said = steer(command, topic, "set", "concurrency=50", wrong, code=2)
        assert named in said.error + said.hint, wrong
    letters = f"dead-letter-topic={topic.name}"  # which only the brokers can tell
    refused = steer(command, topic, "set", "concurrency=50", letters, code=3)
    assert topic.name in refused.error
    assert "nothing changed" in steer(command, topic, "set", "concurrency=2").err
    found = listed(command, topic)
    assert found is not None
    assert found["concurrency"] == 2
    command.gate.touch()
    running.ends(0)
    assert command.record.most_at_once() <= 2
    assert [event["what"] for event in history(command, topic)] == ["begun", "ended"]


def test_what_fails_after_it_is_set_goes_to_the_dead_letter_topic(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(['["a"]', '["a"]', *distinct(20)])
    running = command.begin(
        topic,
        *(*FAST, "--on-failure", "halt", "--retries", "0"),
        gate=command.gate,
        gated="a",
        fail="0/1/0",  # behind the gate
    )
    command.wait_for(running, "done", 20)
    steer(command, topic, "set", "on-failure=dead-letter")
    assert letters_of(command, topic) == []
    command.gate.touch()
    running.ends(6)
    (letter,) = letters_of(command, topic)
    assert letter.message_offset == 1
    assert committed(cluster, topic) == {0: 22}


# --- pause and unpause


def test_while_it_is_paused_nothing_begins_and_the_group_stays_its_own(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    messages = operations(150, lanes=100)
    topic = make_topic(messages)
    running = command.begin(topic, *FAST, "-c", "8", handler=ON_THREADS, pause_ms=20)
    command.wait_for(running, "done", 50)
    said = steer(command, topic, "pause", "--reason", "failover")
    paused_s = time.monotonic()
    assert f"paused by {ME}" in said.err
    assert "in flight" in said.err
    rests(command)
    found = is_in_state(command, topic, "paused")
    assert (found["in_flight"], found["paused"]["event"]["reason"]) == (0, "failover")

    def stands() -> int:
        whole = json.loads(command.plan(topic).read_text())["claims"]["all"]["0"]
        return int(whole["watermark"])

    done = len(command.record.done())
    eventually(lambda: committed(cluster, topic) == {0: stands()}, "what is done is committed")
    assert 0 < stands() <= done // 2
    assert cluster.group(lock_group(command.group(topic))).members
    assert f"paused by {ME}" in steer(command, topic, "pause").err  # once more is no harm
    unpause_s = time.monotonic()
    assert begun_between(command, paused_s, unpause_s) == 0
    assert running.running
    assert "unpaused" in steer(command, topic, "unpause").err
    command.wait_for(running, "begun", done + 1)
    assert "the drain is not paused" in steer(command, topic, "unpause").err
    running.ends(0)
    is_whole(command, messages)
    assert committed(cluster, topic) == {0: 150}
    done_with_it = [event["what"] for event in history(command, topic)]
    assert done_with_it == ["begun", "paused", "paused", "unpaused", "ended"]


@pytest.mark.parametrize("handler", ["OnTheLoop", ON_THREADS])
def test_from_its_answer_on_a_pause_lets_nothing_begin(
    command: Command, make_topic: MakeTopic, handler: str
) -> None:
    topic = make_topic(distinct(100))
    running = command.begin(topic, *FAST, "-c", "4", handler=handler, gate=command.gate)
    command.wait_for(running, "begun", 4)
    assert ": 4 calls in flight" in steer(command, topic, "pause").err
    command.gate.touch()
    eventually(lambda: is_in_state(command, topic, "paused")["in_flight"] == 0, "they have ended")
    assert len(command.record.begun()) == len(command.record.done()) == 4
    stopped = steer(command, topic, "stop")
    assert stopped.way_out("resume") == running.ends(4).resume_words
    assert len(command.record.begun()) == 4
    command.resume(topic)
    is_whole(command, distinct(100))


def test_a_pause_for_a_time_is_over_by_itself(command: Command, make_topic: MakeTopic) -> None:
    messages = distinct(200)
    topic = make_topic(messages)
    running = command.begin(topic, *FAST, "-c", "4", pause_ms=10)
    command.wait_for(running, "done", 20)
    before_s = time.monotonic()
    assert " until " in steer(command, topic, "pause", "--for", "1500ms").err
    running.ends(0)
    begun_s = [line.at_s for line in command.record.lines() if line.mark == "begun"]
    longest_s = max(later - earlier for earlier, later in pairwise(begun_s))
    assert 1.3 <= longest_s <= time.monotonic() - before_s
    is_whole(command, messages)
    *_, paused, unpaused, _ = history(command, topic)
    assert (paused["what"], paused["details"]) == ("paused", ["for 1.5s"])
    assert (unpaused["what"], unpaused["reason"]) == ("unpaused", None)


# --- stop


def test_a_stopped_drain_says_how_to_resume_it_as_it_was_set(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    messages = distinct(200)
    topic = make_topic(messages)
    running = command.begin(topic, *FAST, "-c", "4", gate=command.gate)
    command.wait_for(running, "begun", 4)
    steer(command, topic, "set", "concurrency=50", "plan-interval=200ms")
    command.wait_for(running, "begun", 50)
    stopping = command.start("stop", str(command.plan(topic)), "--reason", "lunch")
    running.says(f"stopping: stopped by {ME}")
    assert is_in_state(command, topic, "stopping")["in_flight"] == 50
    refused = steer(command, topic, "set", "concurrency=60", code=3)
    assert "this drain is stopping" in refused.error
    command.gate.touch()

    ended = running.ends(4)
    said = stopping.ends(0)
    assert "stopping: 50 calls in flight" in said.err
    assert f"the drain has ended: stopped by {ME}" in said.out
    assert said.way_out("resume") == ended.resume_words
    assert " ".join(ended.resume_words).count("--concurrency 50") == 1
    assert " ".join(ended.resume_words).count("--plan-interval 0.2s") == 1
    assert len(command.record.done()) == 50
    assert committed(cluster, topic) == {0: 50}
    last = history(command, topic)[-1]
    assert (last["what"], last["by"], last["reason"]) == ("ended", ME, "lunch")
    assert last["offsets"] == {"0": 50}

    assert "concurrency 50" in command(*ended.resume_words, "--yes").err
    is_whole(command, messages)
    assert committed(cluster, topic) == {0: 200}


def test_stop_now_does_not_wait_for_a_handler_that_hangs(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(20))
    hangs = command.begin(topic, "-c", "4", "--grace", "50s", handler=ON_THREADS, hang=1)
    command.wait_for(hangs, "begun", 4)
    waits = command.start("stop", str(command.plan(topic)))
    hangs.says("stopping")
    asked_s = time.monotonic()
    said = steer(command, topic, "stop", "--now")
    ended = hangs.ends(4, within_s=AT_ONCE_S)
    waits.ends(0)
    assert time.monotonic() - asked_s < AT_ONCE_S
    assert said.way_out("resume") == ended.resume_words
    command.resume(topic)
    assert set(command.record.done()) == every_place(distinct(20))
    command.record.check_order()


def test_stop_now_ends_a_drain_whose_handler_holds_the_loop(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(5))
    blocks = command.begin(topic, handler=BLOCKS_THE_LOOP, hang=1)
    command.wait_for(blocks, "begun", 1)
    found = listed(command, topic)  # which needs no loop
    assert found is not None
    assert found["pid"] == blocks.pid
    said = steer(command, topic, "stop", "--now", code=4)
    ended = blocks.ends(4, within_s=AT_ONCE_S)
    assert "blocked the event loop" in ended.error
    assert ended.resume_words[:2] == ["resume", command.plan(topic).name]
    assert "the drain's process is gone" in said.error
    assert is_in_state(command, topic, "killed")
    command.resume(topic)
    assert set(command.record.done()) == every_place(distinct(5))


# --- watch


def test_watchers_see_how_it_ends_and_disturb_nothing(
    command: Command, make_topic: MakeTopic
) -> None:
    messages = [*same(100), *operations(150, lanes=50)]  # a hot lane is named
    topic = make_topic(messages)
    running = command.begin(topic, *FAST, "-c", "8", gate=command.gate)
    is_in_state(command, topic, "draining")
    plan = str(command.plan(topic))
    killed, frozen, first, second = (command.start("watch", plan) for _ in range(4))
    with TerminalSession(["watch", plan], command.folder, command.env) as screen:
        for watcher in (killed, frozen, first, second):
            watcher.says(f"draining {topic.name} for group {command.group(topic)}")
        screen.shows(f"Draining {topic.name}")
        screen.shows("'hot' 99")
        killed.kill()
        frozen.signal(signal.SIGSTOP)
        steer(command, topic, "set", "concurrency=20", "--reason", "in a hurry")
        first.says("concurrency 8 → 20 (in a hurry)")
        screen.shows("concurrency 8 → 20 (in a hurry)")
        gone = command.start("watch", plan, "-o", "json")
        gone.says("draining")
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
    is_whole(command, messages)


def test_whoever_watches_a_drain_that_is_killed_is_told_so(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(20))
    running = command.begin(topic, gate=command.gate)
    is_in_state(command, topic, "draining")
    watcher = command.start("watch", str(command.plan(topic)))
    watcher.says("draining")
    running.kill()
    ended = watcher.ends(4)
    assert "the drain's process is gone" in ended.error
    assert "resume it" in ended.hint


# --- where it runs, and who may


def test_a_drain_without_a_terminal_under_nohup_is_steered_from_elsewhere(
    command: Command, make_topic: MakeTopic
) -> None:
    messages = distinct(100)
    topic = make_topic(messages)
    command.by = ("setsid", "--wait", "nohup")
    running = command.begin(topic, *FAST, "-c", "2", gate=command.gate)
    command.by = ()
    command.wait_for(running, "begun", 2)
    found = is_in_state(command, topic, "draining")
    os.kill(found["pid"], signal.SIGHUP)  # as the end of its session would
    steer(command, topic, "set", "concurrency=5")
    command.wait_for(running, "begun", 5)
    steer(command, topic, "pause")
    command.gate.touch()
    rests(command)
    watcher = command.start("watch", str(command.plan(topic)))
    watcher.says("draining")
    steer(command, topic, "unpause")
    assert "the drain has ended: done" in watcher.ends(0).out
    running.ends(0)
    is_whole(command, messages)


def test_read_only_lets_look_and_refuses_to_change(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic, other = make_topic(distinct(20)), make_topic(distinct(5))
    what = ["run", *command.what(other), "--from", "earliest"]
    refused = command(*what, "--yes", *command.options(), env=READ_ONLY, code=3)
    is_refused(command, refused)
    assert "DRAINER_READ_ONLY" in refused.error
    assert command.left_behind == []
    assert "g-" + other.name in command(*what, "--dry-run", env=READ_ONLY).out
    assert command.left_behind == []

    running = command.begin(topic, *FAST, "-c", "2", gate=command.gate)
    command.wait_for(running, "begun", 2)
    is_in_state(command, topic, "draining")
    plan = str(command.plan(topic))
    watcher = command.start("watch", plan, env=READ_ONLY)
    watcher.says("draining")
    for asked in ("set concurrency=9", "pause", "unpause", "stop", "stop --now"):
        refused = steer(command, topic, *asked.split(), code=3, **READ_ONLY)
        assert "DRAINER_READ_ONLY" in refused.error
    found = listed(command, topic, **READ_ONLY)
    assert found is not None
    assert (found["state"], found["concurrency"]) == ("draining", 2)
    command.gate.touch()
    running.ends(0)
    watcher.ends(0)

    before = command.plan(topic).read_bytes()
    for look in ("show", "history", "verify"):
        assert command("plan", look, plan, env=READ_ONLY).out
    for words in (("resume", plan, "--yes"), ("plan", "undo", plan, "--yes")):
        assert "DRAINER_READ_ONLY" in command(*words, env=READ_ONLY, code=3).error
    assert command.plan(topic).read_bytes() == before
    assert committed(cluster, topic) == {0: 20}
    assert [event["what"] for event in history(command, topic)] == ["begun", "ended"]


def test_where_a_reason_is_required_nothing_changes_without_one(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(20))
    command.env |= WITH_REASON
    refused = command.begin(topic, *FAST).ends(2)
    assert "--reason" in refused.hint
    assert command.left_behind == []

    why = ("--reason", "ticket 7")
    running = command.begin(topic, *FAST, *why, "-c", "2", gate=command.gate)
    command.wait_for(running, "begun", 2)
    is_in_state(command, topic, "draining")
    for words in (("set", "concurrency=9"), ("pause",), ("unpause",), ("stop",)):
        assert "--reason" in steer(command, topic, *words, code=2).hint
    steer(command, topic, "set", "concurrency=3", *why)
    command.gate.touch()
    running.ends(0)
    plan = str(command.plan(topic))
    assert "--reason" in command("resume", plan, "--yes", code=2).hint
    assert "--reason" in command("plan", "undo", plan, "--yes", code=2).hint
    assert committed(cluster, topic) == {0: 20}
    assert command.record.most_at_once() <= 3
    command("plan", "undo", plan, "--yes", "--reason", "ticket 8")
    told = [(event["what"], event["reason"]) for event in history(command, topic)]
    assert told == [
        ("begun", "ticket 7"),
        ("changed", "ticket 7"),
        ("ended", None),
        ("undone", "ticket 8"),
    ]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A runtime folder that everybody may enter."""
    with TemporaryDirectory(prefix="run-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_not_answered(
    command: Command, make_topic: MakeTopic, open_folder: Path
) -> None:
    topic = make_topic(distinct(20))
    command.env["XDG_RUNTIME_DIR"] = str(open_folder)
    running = command.begin(topic, *FAST, "-c", "2", gate=command.gate)
    command.wait_for(running, "begun", 2)
    is_in_state(command, topic, "draining")
    folder = open_folder / "drainer"
    socket = folder / socket_name(command.plan(topic))
    assert (folder.stat().st_mode & 0o777, socket.stat().st_mode & 0o777) == (0o700, 0o600)

    stranger = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

    command.by = stranger
    assert listed(command, topic) is None
    assert "as that user, or as root" in steer(command, topic, "stop", "--now", code=3).hint
    folder.chmod(0o755)
    socket.chmod(0o666)  # files that let everybody in
    assert "as that user, or as root" in steer(command, topic, "set", "concurrency=9", code=3).hint
    asks = [*stranger, sys.executable, "-c", REQUESTS, str(socket)]
    assert subprocess.run(asks, capture_output=True, check=True).stdout == b"[]\n"
    command.by = ()
    folder.chmod(0o700)
    assert is_in_state(command, topic, "draining")["concurrency"] == 2
    command.gate.touch()
    running.ends(0)
    is_whole(command, distinct(20))


def test_a_socket_that_is_removed_comes_again(
    command: Command, make_topic: MakeTopic, open_folder: Path
) -> None:
    topic = make_topic(distinct(20))
    command.env["XDG_RUNTIME_DIR"] = str(open_folder)
    running = command.begin(topic, *FAST, "-c", "2", gate=command.gate)
    command.wait_for(running, "begun", 2)
    socket = open_folder / "drainer" / socket_name(command.plan(topic))
    assert socket.exists()
    watcher = command.start("watch", str(command.plan(topic)))
    watcher.says("draining")
    shutil.rmtree(socket.parent)
    eventually(socket.exists, "it is there again", HUNG_UP_S)
    steer(command, topic, "set", "concurrency=3")
    command.wait_for(running, "begun", 3)

    fallback = Path("/tmp", f"drainer-{os.geteuid()}")
    had = fallback.exists()
    shutil.rmtree(open_folder)  # as at the end of a user's session
    there = fallback / socket.name
    eventually(there.exists, "it is in the next folder", HUNG_UP_S)
    steer(command, topic, "set", "concurrency=4")
    command.wait_for(running, "begun", 4)
    open_folder.mkdir()
    command.gate.touch()
    running.ends(0)
    assert "the drain has ended: done" in watcher.ends(0).out
    assert not there.exists()
    if not had:
        fallback.rmdir()
    is_whole(command, distinct(20))


# --- Spark


@pytest.mark.long
def test_on_spark_a_drain_is_changed_paused_and_stopped_the_same_way(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    messages = operations(1_500, lanes=300)
    topic = make_topic(messages)
    running = command.begin(topic, *ON_SPARK, "-c", "20", pause_ms=20)
    command.wait_for(running, "done", 50, within_s=200)
    assert is_in_state(command, topic, "draining")["engine"] == "spark"
    steer(command, topic, "set", "concurrency=4", "rate=150/s")
    holds_s = time.monotonic() + ON_SPARK_WITHIN_S
    now_s = goes_on_until(command, holds_s + WITHIN_S)
    assert most_at_once(command, holds_s, now_s) <= 4
    assert 0 < begun_between(command, holds_s, now_s) <= 150 * (now_s - holds_s) + 10

    steer(command, topic, "pause")
    paused_s = time.monotonic()
    rests(command)
    eventually(lambda: is_in_state(command, topic, "paused")["in_flight"] == 0, "ps says so")
    assert cluster.group(lock_group(command.group(topic))).members
    assert begun_between(command, paused_s + WITHIN_S, time.monotonic()) == 0
    steer(command, topic, "unpause")
    steer(command, topic, "set", "concurrency=10", "rate=none")
    command.wait_for(running, "done", len(command.record.done()) + 100)
    said = steer(command, topic, "stop")
    ended = running.ends(4)
    assert said.way_out("resume") == ended.resume_words
    assert " ".join(ended.resume_words).count("--concurrency 10") == 1
    command.resume(topic, "--engine", "process", "-c", "50")
    is_whole(command, messages)
    assert committed(cluster, topic) == {0: 1_500}


@pytest.mark.long
@pytest.mark.parametrize("handler", ["OnTheLoop", ON_THREADS])
def test_on_spark_failures_are_met_as_it_was_set_last(
    command: Command, make_topic: MakeTopic, cluster: Cluster, handler: str
) -> None:
    messages = ['["a"]', '["a"]', *distinct(1_500)]
    topic = make_topic(messages)
    running = command.begin(
        topic,
        *(*ON_SPARK, "-c", "5", "--on-failure", "halt", "--retries", "0"),
        handler=handler,
        pause_ms=20,
        gate=command.gate,
        gated="a",
        fail="0/1/0",
    )
    command.wait_for(running, "done", 50, within_s=200)
    steer(command, topic, "set", "on-failure=dead-letter")
    goes_on_until(command, time.monotonic() + ON_SPARK_WITHIN_S)
    command.gate.touch()
    running.ends(6)
    (letter,) = letters_of(command, topic)
    assert letter.message_offset == 1
    assert committed(cluster, topic) == {0: 1_502}
    assert [event["what"] for event in history(command, topic)] == ["begun", "changed", "ended"]
    assert command.record.repeats() == {}
    command.record.check_order()


@pytest.mark.long
@pytest.mark.parametrize("handler", ["OnTheLoop", ON_THREADS, BLOCKS_THE_LOOP])
def test_on_spark_stop_now_does_not_wait_for_a_handler_that_hangs(
    command: Command, make_topic: MakeTopic, handler: str
) -> None:
    messages = distinct(200)
    topic = make_topic(messages)
    hangs = command.begin(topic, *ON_SPARK, "-c", "4", "--grace", "50s", handler=handler, hang=1)
    command.wait_for(hangs, "begun", 1, within_s=200)
    is_in_state(command, topic, "draining")
    waits = command.start("stop", str(command.plan(topic)))
    hangs.says("stopping")
    said = steer(command, topic, "stop", "--now")
    ended = hangs.ends(4, within_s=AT_ONCE_S)
    waits.ends(0)
    assert said.way_out("resume") == ended.resume_words
    command.resume(topic, "--engine", "process")
    assert set(command.record.done()) == every_place(messages)
    command.record.check_order()


# --- everything, again and again

MOST = 40  # calls at once


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "handler"),
    [
        ((), "OnTheLoop"),
        ((), ON_THREADS),
        (("--engine", "spark", "--master", "local[2]"), "OnTheLoop"),
        (("--engine", "spark", "--master", "local[2]"), ON_THREADS),
    ],
    ids=["loop", "threads", "loop, Spark", "threads, Spark"],
)
def test_steered_stopped_and_killed_at_random_it_loses_nothing(
    command: Command,
    make_topic: MakeTopic,
    cluster: Cluster,
    runtime_folder: Path,
    more: tuple[str, ...],
    handler: str,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    messages = operations(4_000, lanes=500)
    topic = make_topic(messages)
    plan = str(command.plan(topic))
    options = {"pause_ms": 5}
    killed = 0
    running = command.begin(topic, *FAST, *more, "-c", "10", handler=handler, **options)

    def resume() -> Running:
        words = ["resume", plan, "--yes", *FAST, *more, "-c", "10"]
        return command.start(*words, *command.options(**options))

    def asks(*words: str) -> Outcome:
        outcome = command.start(*words).ended()
        assert "Traceback" not in outcome.err
        assert outcome.code in (0, 3, 4), outcome.err  # it may be over by now
        return outcome

    done = 0
    while running.running and done < 2 * len(messages):  # else nothing lets Spark begin any more
        done += chance.randrange(50, 600)
        reached = min(done, 2 * len(messages))
        eventually(
            lambda: len(set(command.record.done())) >= reached or not running.running,  # noqa: B023
            "it goes on",
            200,
        )
        match chance.randrange(9):
            case 0 | 1:
                asks("set", plan, f"concurrency={chance.randint(1, MOST)}")
            case 2:
                asks("set", plan, f"rate={chance.choice(['none', '500/s', '2000/s'])}", "retries=2")
            case 3:
                asks("pause", plan, "--for", "300ms")
            case 4:
                asks("pause", plan)
                asks("set", plan, f"concurrency={chance.randint(1, MOST)}")
                asks("unpause", plan)
            case 5:
                watcher = command.start("watch", plan)
                asks("ps")
                watcher.kill()
            case 6:
                shutil.rmtree(runtime_folder / "drainer", ignore_errors=True)
            case 7:
                if asks("stop", plan).code == 0 and running.ended().code == 4:
                    running = resume()
            case 8 if running.running:
                running.kill()
                killed += 1
                running = resume()
    running.ends(0)
    assert set(command.record.done()) == every_place(messages)
    assert len(command.record.repeats()) <= killed * (MOST + 100)
    command.record.check_order()
    assert committed(cluster, topic) == {0: len(messages)}
    command("plan", "verify", plan)


@pytest.mark.long
def test_watchers_that_stand_still_disturb_nothing(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(distinct(50), partitions=64)  # a status is some kilobytes
    running = command.begin(topic, *FAST, "-c", "1", pause_ms=10)
    is_in_state(command, topic, "draining")
    frozen = [command.start("watch", str(command.plan(topic))) for _ in range(20)]
    for watcher in frozen:
        watcher.says("draining")
        watcher.signal(signal.SIGSTOP)
    seen = command.start("watch", str(command.plan(topic)))
    running.ends(0)
    assert "the drain has ended: done" in seen.ends(0).out
    begun_s = [line.at_s for line in command.record.lines() if line.mark == "begun"]
    assert max(later - earlier for earlier, later in pairwise(begun_s)) < WITHIN_S
    for watcher in frozen:
        watcher.kill()


def test_all_drains_are_watched_a_line_each(
    command: Command, make_topic: MakeTopic, on_terminal: OnTerminal
) -> None:
    topics = [make_topic(distinct(20)) for _ in range(2)]
    drains = [command.begin(topic, *FAST, "-c", "2", gate=command.gate) for topic in topics]
    for topic in topics:
        is_in_state(command, topic, "draining")
    screen = on_terminal("watch", "--all")
    plain = command.start("watch", "--all")
    for topic in topics:
        screen.shows(f"{topic.name} for {command.group(topic)}  draining")
        plain.says(f"{topic.name} for {command.group(topic)}  draining")
    command.gate.touch()
    for running in drains:
        running.ends(0)
    assert "no drain runs" in screen.ends(0)
    plain.ends(0)
