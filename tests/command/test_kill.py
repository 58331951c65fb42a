"""Killed at any moment, nothing is lost, and hardly anything is handled twice (law 5)."""

from __future__ import annotations

import random

from command.conftest import MakeTopic, committed
from command.process import FAST, Command
from command.record import every_place
from drainer.kafka.cluster import Cluster

CONCURRENCY = 20
MESSAGES = 1000
KILLS = 3
# What finished may be unwritten for as long as the journal rests (50 ms), the event loop is kept
# by others (a slice of 10 ms each for the workers and the pump), and the write takes. The rest is
# for a machine that is shared: a thread of the process may wait for its turn.
UNWRITTEN_S = 0.15


def values(chance: random.Random) -> list[str]:
    """Three operations a message, some sub-keys far hotter than others."""
    keys = [f'"k{int(chance.paretovariate(0.7)) % 200}"' for _ in range(3 * MESSAGES)]
    return [f"[{', '.join(keys[3 * n : 3 * n + 3])}]" for n in range(MESSAGES)]


def check_repeats(command: Command) -> None:
    """Only what was in flight, or finished just before a kill, was handled again."""
    lines = command.record.lines()
    runs = list(dict.fromkeys(line.pid for line in lines))
    for pid, *later in (runs[n:] for n in range(len(runs) - 1)):
        mine = [line for line in lines if line.pid == pid]
        killed_s = mine[-1].at_s
        done = {line.place: line.at_s for line in mine if line.mark == "done"}
        in_flight = {line.place for line in mine} - set(done)
        again = {line.place for line in lines if line.pid in later}
        assert len(in_flight) <= CONCURRENCY
        assert in_flight <= again, "what was in flight is handled by a later run"
        for place in again & set(done):
            unwritten_s = killed_s - done[place]
            assert unwritten_s <= UNWRITTEN_S, f"{place} was done {unwritten_s:.3f} s before"


def test_killed_again_and_again_at_random_it_loses_nothing(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    messages = values(chance)
    topic = make_topic(messages)
    moments = sorted(chance.randrange(3 * MESSAGES) for _ in range(KILLS))
    more = (*FAST, "-c", str(CONCURRENCY))
    running = command.begin(topic, *more, pause_ms=2)
    for moment in moments:
        command.wait_for(running, "done", moment)
        running.kill()
        plan = command.plan(topic)
        command("plan", "verify", str(plan))
        words = ["resume", str(plan), "--yes", *more, *command.options(pause_ms=2)]
        running = command.start(*words)
    running.ends(0)
    assert set(command.record.done()) == every_place(messages)
    command.record.check_order()
    check_repeats(command)
    assert committed(cluster, topic) == {0: MESSAGES}
    assert command.left_behind == [command.plan(topic).name]
