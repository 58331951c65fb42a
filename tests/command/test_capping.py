"""``--broker-limits``: a drain is held to what the brokers tolerate, and says so, then and after.

How well it is held to it is tested on a clock of its own (tests/core/test_pace.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from command.conftest import distinct
from command.process import Command
from core.limit_samples import measured
from drainer.kafka.cluster import Cluster
from drainer.limits.search.boundary import as_json
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic

SIZE = 100
ROOMY = {SIZE: 1_000_000.0}
TIGHT = {SIZE: 1_250.0}  # 1,000/s of it are safe


@pytest.fixture
def write(command: Command, cluster: Cluster) -> Path:
    """Limits of this cluster that hold a drain back."""
    return put(command, "limits.json", TIGHT, command.cluster.cluster_id)


def put(
    command: Command, name: str, rates: dict[int, float], cluster_id: str, groups: int = 1
) -> Path:
    path = command.folder.parent / name
    path.write_bytes(orjson.dumps(as_json([measured(rates, cluster_id=cluster_id, groups=groups)])))
    return path


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(600, SIZE - 4))  # in ["…"], so of SIZE bytes each


def test_it_is_told_before_meanwhile_and_at_the_end(
    command: Command, topic: Topic, write: Path
) -> None:
    outcome = command.drain(topic, "--broker-limits", str(write), "-o", "json")
    printed = " ".join(outcome.err.split())
    assert "1,000 messages/s, 98 KiB/s (maximum that drainer reads; 100 B per message" in printed
    cap = outcome.answer["read_cap"]
    of_cap = [cap[name] for name in ("messages_per_s", "bytes_per_s", "message_bytes")]
    assert of_cap == [1_000, 100_000, 100]
    assert cap["average_per_s"] > 0
    assert outcome.answer["write_cap"] is None


def test_a_dry_run_and_an_estimate_name_the_cap_that_binds(
    command: Command, topic: Topic, write: Path
) -> None:
    what = [*command.what(topic, "count"), "--from", "earliest", "--broker-limits", str(write)]
    how = ["--order", "none", "--latency", "1ms", "-o", "json"]
    dry = command("run", *what, *how, "--dry-run")
    assert dry.answer["cap"]["messages_per_s"] == 1_000
    estimated = command("estimate", *what, *how)
    for found in (dry.answer["estimate"], estimated.answer["estimate"]):
        assert found["read_cap"] == 1_000
        assert found["none"]["bound"] == "read cap"
        assert found["none"]["bounds"]["read cap"] == pytest.approx(0.599)
        assert found["write_cap"] is None


def test_reading_is_capped_by_what_groups_read_and_writing_by_what_was_sent(
    command: Command, topic: Topic
) -> None:
    file = put(command, "groups.json", TIGHT, command.cluster.cluster_id, groups=5)
    what = [*command.what(topic, "produce"), "--set", f"topic={command.topic().name}"]
    limits = ["--from", "earliest", "--broker-limits", str(file), "-o", "json"]
    requested = [*command.what(topic, "count"), *limits, "--order", "none", "--latency", "1ms"]

    estimate = command("estimate", *requested).answer["estimate"]
    dry = command("run", *what, *limits, "--dry-run").answer
    answer = command("run", *what, *limits, "--yes").answer

    assert dry["cap"]["messages_per_s"] == estimate["read_cap"] == 5_000
    assert answer["read_cap"]["messages_per_s"] == 5_000
    assert answer["write_cap"]["messages_per_s"] == 1_000


def test_a_resume_keeps_them_takes_others_or_none(
    command: Command, topic: Topic, write: Path
) -> None:
    running = command.begin(topic, "--broker-limits", str(write), gate=command.gate)
    running.prints("draining")
    running.kill()
    plan = command.plan(topic)
    kept = PlanFile(plan).load().plan.terms.limits
    assert kept is not None
    assert kept.cap(SIZE).messages_per_s == 1_000
    other = put(command, "other.json", ROOMY, command.cluster.cluster_id)

    def shown(*more: str) -> str:
        words = [str(plan), "--yes", *command.options(gate=command.gate), *more]
        resumed = command.start("resume", *words)
        resumed.prints("draining")
        resumed.kill()
        return resumed.err

    assert "1,000 messages/s" in shown()
    assert "800,000 messages/s" in shown("--broker-limits", str(other))
    assert "limits" not in shown("--broker-limits", "none")
    command.gate.touch()
    command.resume(topic, "--broker-limits", "none", gate=command.gate)
    assert PlanFile(plan).load().plan.terms.limits is None


def test_limits_of_another_cluster_are_warned_of(command: Command, topic: Topic) -> None:
    other = put(command, "other.json", ROOMY, "elsewhere")
    outcome = command.drain(topic, "--broker-limits", str(other))
    assert "warning: the limits were measured on another cluster, elsewhere" in outcome.err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "does not exist"),
        (json.dumps(as_json([measured({SIZE: 0.0})])), "no traffic was safe"),
    ],
)
def test_limits_that_allow_for_nothing_are_refused(
    command: Command, topic: Topic, content: str | None, expected: str
) -> None:
    path = command.folder.parent / "bad.json"
    if content is not None:
        path.write_text(content)
    outcome = command.drain(topic, "--broker-limits", str(path), code=3)
    assert expected in outcome.error
    assert str(path) in outcome.error
    assert outcome.hint
    assert command.left_behind == []
