"""``--broker-limits``: the cap is shown, and kept for a resume; core/test_pace.py has the rest."""

from __future__ import annotations

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
    """Limits of this cluster that cap a drain."""
    return put(command, "limits.json", TIGHT, command.cluster.cluster_id)


def put(
    command: Command, name: str, rates: dict[int, float], cluster_id: str, groups: int = 1
) -> Path:
    path = command.folder.parent / name
    path.write_bytes(orjson.dumps(as_json(measured(rates, cluster_id=cluster_id, groups=groups))))
    return path


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(600, SIZE - 4))  # in ["…"], so of SIZE bytes each


def test_the_cap_is_shown_before_the_drain_and_at_its_end(
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


@pytest.mark.long
def test_reading_is_capped_by_what_groups_read_and_writing_by_what_was_sent(
    command: Command, topic: Topic
) -> None:
    file = put(command, "groups.json", TIGHT, command.cluster.cluster_id, groups=5)
    what = [*command.what(topic, "produce"), "--set", f"topic={command.topic().name}"]
    limits = ["--from", "earliest", "--broker-limits", str(file), "-o", "json"]
    requested = [*command.what(topic, "count"), *limits, "--tune", "order=none", "--latency", "1ms"]

    estimate = command("estimate", *requested).answer["estimate"]
    inspected = command("inspect", *command.what(topic, "count"), *limits).answer
    dry = command("run", *what, *limits, "--dry-run").answer
    answer = command("run", *what, *limits, "--yes").answer

    assert inspected["cap"]["messages_per_s"] == 5_000
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
    other = put(command, "other.json", ROOMY, "another-cluster")

    def shown(*more: str) -> str:
        words = [*command.options(gate=command.gate), *more]
        resumed = command.start(*command.resume_of(plan), *words)
        resumed.prints("draining")
        resumed.kill()
        return resumed.err

    assert "1,000 messages/s" in shown()
    others = shown("--broker-limits", str(other))
    assert "800,000 messages/s" in others
    assert "warning: the limits were measured on another cluster, another-cluster" in others
    missing = command.resume(topic, "--broker-limits", "missing.json", code=3)
    assert "missing.json: it does not exist" in missing.error
    command.gate.touch()
    without = command.resume(topic, "--broker-limits", "none", gate=command.gate)
    printed = " ".join(without.err.split())
    assert "maximum that drainer reads;" not in printed
    assert "limits 76 MiB/s → none" in printed
    assert PlanFile(plan).load().plan.terms.limits is None
