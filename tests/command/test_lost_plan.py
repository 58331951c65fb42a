"""A drain whose plan is gone begins anew at the group's committed offset."""

from __future__ import annotations

from command.conftest import MakeTopic, committed
from command.process import FAST, Command
from command.record import every_place
from drainer.kafka.cluster import Cluster
from kafka.topic import eventually

DISTINCT = 60
MESSAGES = [
    '["before"]',
    '["stuck", "a"]',
    '["a"]',
    *(f'["x{n}", "y{n}"]' for n in range(DISTINCT)),
]


def test_without_its_plan_a_killed_drain_repeats_from_the_committed_offset(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(MESSAGES)
    short = ("-X", "session.timeout.ms=1500")  # of its lock, which the next one waits for
    running = command.begin(topic, *FAST, *short, gate=command.gate, gated="stuck")
    places = every_place(MESSAGES)

    def all_but_one_done() -> bool:
        return set(command.record.done()) == places - {(0, 1, 0)}

    eventually(
        lambda: (all_but_one_done() and committed(cluster, topic) == {0: 1}) or not running.running,
        "all but the one that is stuck is done, and what is before it committed",
        30,
    )
    running.kill()
    for path in command.folder.iterdir():
        path.unlink()
    refused = command("resume", str(command.plan(topic)), "--yes", *command.options(), code=3)
    assert "starts at the group's committed offset, and repeats" in refused.hint

    said = command("run", *command.what(topic), "--yes", *command.options()).err

    assert "repeats what was finished above it" in " ".join(said.split())

    assert set(command.record.done()) == places
    assert set(command.record.repeats()) == places - {(0, 0, 0)}
    command.record.check_order()
    assert committed(cluster, topic) == {0: len(MESSAGES)}
