"""Killed at any moment, nothing is lost, and hardly anything is handled twice (law 5)."""

from __future__ import annotations

import random

from command.process import Command
from command.record import check_repeats, every_place
from kafka.topic import eventually

CONCURRENCY = 20
MESSAGES = 1000
KILLS = 3


def values(chance: random.Random) -> list[str]:
    """Three operations a message, some sub-keys far hotter than others."""
    keys = [f'"k{int(chance.paretovariate(0.7)) % 200}"' for _ in range(3 * MESSAGES)]
    return [f"[{', '.join(keys[3 * n : 3 * n + 3])}]" for n in range(MESSAGES)]


def test_killed_again_and_again_at_random_it_loses_nothing(command: Command) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    messages = values(chance)
    topic = command.topic(messages)
    moments = sorted(chance.randrange(3 * MESSAGES) for _ in range(KILLS))
    more = ("-c", str(CONCURRENCY))
    running, killed = command.begin(topic, *more, pause_ms=2), set[int]()
    for moment in moments:
        command.wait_for(running, "done", moment)
        running.kill()
        killed.add(running.pid)
        plan = command.plan(topic)
        command("plan", "verify", str(plan))
        words = [*command.resume_of(plan), *more, *command.options(pause_ms=2)]
        running = command.start(*words)
    running.ends(0)
    command.ensure_drained(topic)
    check_repeats(command.record.lines(), killed, CONCURRENCY, KILLS)
    assert command.committed(topic) == {0: MESSAGES}
    assert command.left_behind == [command.plan(topic).name]


DISTINCT = 60
STUCK = [
    '["before"]',
    '["stuck", "a"]',
    '["a"]',
    *(f'["x{n}", "y{n}"]' for n in range(DISTINCT)),
]


def test_without_its_plan_a_killed_drain_repeats_from_the_committed_offset(
    command: Command,
) -> None:
    topic = command.topic(STUCK)
    short = ("-X", "session.timeout.ms=1500")  # of its lock, which the next one waits for
    running = command.begin(topic, *short, gate=command.gate, gated="stuck")
    places = every_place(STUCK)

    command.wait_for(running, "done", len(places) - 1)
    eventually(lambda: command.committed(topic) == {0: 1}, "what is before it is committed", 30)
    verified = " ".join(command("plan", "verify", str(command.plan(topic))).err.split())
    assert "a drain works by this plan now, so group and journal are not checked" in verified
    running.kill()
    for path in command.folder.iterdir():
        path.unlink()
    refused = command("resume", str(command.plan(topic)), "--yes", *command.options(), code=3)
    assert "starts at the committed offset, and repeats" in refused.hint

    output = command("run", *command.what(topic), "--yes", *command.options()).err

    assert "above the committed offset is not known here" in " ".join(output.split())

    assert set(command.record.done()) == places
    assert set(command.record.repeats()) == places - {(0, 0, 0)}
    command.record.check_order()
    assert command.committed(topic) == {0: len(STUCK)}
