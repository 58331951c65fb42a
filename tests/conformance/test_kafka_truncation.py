"""Kafka's test of a log that is truncated under a consumer, on a drain.

Source: apache/kafka, ``TruncationTest.test_offset_truncate``,
https://github.com/apache/kafka/blob/trunk/tests/kafkatest/tests/client/truncation_test.py

A consumer is past the end to which an unclean election cuts its log, and the log grows again. It
must notice by the leader's epoch, must not be reset to the beginning, and must not be given a
record twice; who reads the log anew finds fewer records than it was given.

A consumer goes on at the end of what is left. A drain has an account of offsets that mean other
records now, so it ends instead, with an exit code that no resume changes. What it had read is
handled, nothing that took the place of lost records is, and the group stays where it was. That
holds too for a drain that has not read as far as the cut, which Kafka's test has no counterpart of.

tests/kafka has the same on the classes for reading, committing and following; this is the command,
with what a person does then. Of logs that lose their beginning see tests/command/test_outside.py,
and of topics that are made again tests/kafka/test_fetch.py. scenarios/chaos/cut.py does it by an
election on three brokers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from command.process import Command
from drainer.errors import EXIT_UNRESUMABLE
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.cut_log import cut_log

STUCK, NEW = 20, 30


@pytest.fixture
def command(tmp_path: Path, own_broker: Broker) -> Iterator[Command]:
    """The command, with a broker of its own to cut logs on."""
    with Cluster.connect(ClientSettings.load(own_broker.bootstrap_servers), 60) as cluster:
        made = Command(tmp_path, cluster)
        yield made
        made.close()


def produce(topic: Topic, keys: Iterable[str], padding: int) -> None:
    """Produce a batch for each key, because logs are cut between batches."""
    for key in keys:
        topic.produce([json.dumps([key]) + " " * padding])


def ensure_noticed(begun: Sequence[str], old: Sequence[str], left: Sequence[str]) -> None:
    """Ensure that a consumer of a log that was cut was given no record twice and none in place of
    another, and was not reset.

    ``begun`` is what it was given, ``old`` the log before, and ``left`` the log of now.
    """
    assert len(begun) == len(set(begun)), "reset, and given records twice"
    assert set(begun) == {*old[: len(begun)]}, "given records in place of others, or not all"
    assert len(set(left) & set(old)) < len(old), "nothing was cut"


OLD = [f"old-{n}" for n in range(5)]


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param([*OLD, *OLD[:2]], id="reset"),
        pytest.param([*OLD[:3], "new-0"], id="in-place-of-a-lost-one"),
        pytest.param([OLD[0], OLD[2]], id="one-is-passed-over"),
    ],
)
def test_what_a_consumer_must_not_do_is_found_out(begun: list[str]) -> None:
    left = [*OLD[:3], "new-0", "new-1"]
    ensure_noticed(OLD, OLD, left)
    with pytest.raises(AssertionError):
        ensure_noticed(begun, OLD, left)


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "cut", "padding"),
    [
        pytest.param(40, 30, 0, id="above-the-committed-offset"),
        pytest.param(40, 10, 0, id="below-the-committed-offset"),
        pytest.param(100, 90, 100_000, id="beyond-what-was-read"),
    ],
)
def test_a_log_that_is_cut_amid_a_drain_and_grows_again_ends_it(
    command: Command, own_broker: Broker, count: int, cut: int, padding: int
) -> None:
    old, new = [f"old-{n}" for n in range(count)], [f"new-{n}" for n in range(NEW)]
    topic = command.topic()
    produce(topic, old, padding)
    small = ("--tune", "buffer=64KiB", "-c", "4")
    running = command.begin(topic, *small, gate=command.gate, gated=f"old-{STUCK}")
    command.wait_for(running, "done", STUCK if padding else count - 1)
    eventually(lambda: command.committed(topic) == {0: STUCK}, "it waits for one")

    cut_log(own_broker, topic.name, 0, cut)  # the broker restarts
    produce(topic, new, padding)
    command.gate.touch()
    assert "lost records below" in running.ends(EXIT_UNRESUMABLE).error
    assert "lost records below" in command.resume(topic, code=EXIT_UNRESUMABLE).error

    begun = [
        key for line in command.record.lines() if line.mark == "begun" for key in line.keys or ()
    ]
    ensure_noticed(begun, old, [*old[:cut], *new])
    assert (len(begun) < cut) == bool(padding)
    assert command.committed(topic) == {0: STUCK}

    # As the hint has it: the group is put to where the log was cut, and a new drain has the rest.
    command.cluster.alter_committed(command.group(topic), topic.name, {0: cut})
    words = ("--plan", "another.json", "--yes", *command.options())
    command("run", *command.what(topic), *words)
    lines = command.record.lines()[2 * len(begun) :]
    assert {key for line in lines for key in line.keys or ()} == set(new)
    assert command.committed(topic) == {0: cut + NEW}
