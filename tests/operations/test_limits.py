"""Measuring limits on a real cluster by modelled traffic: what is refused, what is removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from drainer.errors import Interrupted, LimitsRefused, Refused
from drainer.kafka.cluster import Cluster
from drainer.limits import measure as operation
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import delete_test_topics, find_test_topics
from drainer.limits.kafka.traffic import TrafficTargets
from drainer.limits.measure import PreparedLimits, measure_limits, prepare_limits
from drainer.limits.search.boundary import cap_curve
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import End
from kafka.topic import eventually

from .modelled import ModelledCluster


@pytest.fixture(autouse=True)
def alone_on_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may use the broker meanwhile, and have test topics on it."""
    monkeypatch.setattr(operation, "live_traffic", lambda _: ())
    monkeypatch.setattr(operation, "find_left_behind", lambda _: ())


@dataclass
class ModelledHost(AbstractContextManager["ModelledHost", None]):
    """Modelled traffic on a real topic, which is seen to be there while the traffic is."""

    cluster: Cluster
    modelled: ModelledCluster = field(default_factory=ModelledCluster)
    begun: list[TrafficTargets] = field(default_factory=list)
    ended: bool = False

    def __exit__(self, *_: object) -> None:
        self.ended = True

    @contextmanager
    def __call__(self, targets: TrafficTargets) -> Iterator[ModelledCluster]:
        for topic in targets.topics:
            assert len(self.cluster.topic(topic).partitions) == targets.partitions
        self.begun.append(targets)
        yield self.modelled


SETTINGS = LimitSettings(message_bytes=(1024,), partitions=3, warm_up_s=5.0, window_s=20.0)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "limits.json"


def is_gone(cluster: Cluster, topic: str) -> None:
    """Brokers take note of it one after the other."""
    eventually(lambda: topic not in find_test_topics(cluster), f"{topic} is gone")


def measured(cluster: Cluster, prepared: PreparedLimits, host: ModelledHost | None = None) -> Any:
    """Limits that a run finds, and the error about what it could not remove."""
    return measure_limits(cluster, prepared, host or ModelledHost(cluster), lambda _: None)


def test_the_topics_that_were_named_are_there_for_the_traffic_and_gone_afterwards(
    cluster: Cluster, out: Path
) -> None:
    prepared = prepare_limits(cluster, replace(SETTINGS, consumer_groups=2, topics=2), out)
    targets = prepared.targets
    assert len(set(targets.topics)) == 2
    assert not set(targets.topics) & set(find_test_topics(cluster))
    host = ModelledHost(cluster)

    limits, left = measured(cluster, prepared, host)

    assert host.begun == [targets]
    assert (targets.partitions, targets.groups) == (3, 2)
    assert host.ended
    assert left is None
    for topic in targets.topics:
        is_gone(cluster, topic)
    assert not limits.missing
    assert LimitsFile(out).load() == limits
    assert [path.name for path in out.parent.iterdir()] == ["limits.json"]


def test_a_stopped_run_leaves_no_topic_and_reports_how_to_resume(
    cluster: Cluster, out: Path
) -> None:
    prepared = prepare_limits(cluster, SETTINGS, out)
    host = ModelledHost(cluster, ModelledCluster(stop_at=4))

    with pytest.raises(Interrupted, match="keeps 2 trials") as stopped:
        measured(cluster, prepared, host)

    assert "Repeat the command" in str(stopped.value.hint)
    assert host.ended
    is_gone(cluster, prepared.targets.topics[0])
    again = prepare_limits(cluster, SETTINGS, out)
    assert len(again.limits.trials) == 2
    host = ModelledHost(cluster)
    limits, _ = measured(cluster, again, host)
    assert not limits.missing
    assert len(host.modelled.tried) == len(limits.trials) - 2


def forbidden(*_: object) -> None:
    raise Refused("this user may not do that", hint="grant CREATE")


def test_who_may_not_create_the_topic_is_refused_for_that_alone(
    cluster: Cluster, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_limits(cluster, SETTINGS, out)

    monkeypatch.setattr(operation, "create_test_topic", forbidden)
    monkeypatch.setattr(operation, "delete_test_topics", forbidden)
    with pytest.raises(Refused) as refused:
        measured(cluster, prepared)

    assert str(refused.value) == "this user may not do that"
    assert refused.value.hint == "grant CREATE"


def test_a_topic_that_can_not_be_removed_is_reported_and_spoils_no_result(
    cluster: Cluster, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_limits(cluster, SETTINGS, out)

    with monkeypatch.context() as patched:
        patched.setattr(operation, "delete_test_topics", forbidden)
        limits, left = measured(cluster, prepared)

    assert not limits.missing
    assert prepared.targets.topics[0] in str(left)
    assert left is not None
    assert "Repeat the command" in str(left.hint)
    delete_test_topics(cluster, prepared.targets.topics)


def test_others_on_the_cluster_are_refused_by_name(
    cluster: Cluster, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = ("orders receives 12.3 messages/s", "group billing has members")
    monkeypatch.setattr(operation, "live_traffic", lambda _: busy)

    with pytest.raises(Refused, match=r"orders receives 12\.3 messages/s") as refused:
        prepare_limits(cluster, SETTINGS, out)

    assert "group billing has members" in str(refused.value)
    assert refused.value.hint


@pytest.fixture
def known(cluster: Cluster, out: Path) -> LimitsFile:
    """A result that is there."""
    measured(cluster, prepare_limits(cluster, SETTINGS, out))
    return LimitsFile(out)


def prepare(cluster: Cluster, known: LimitsFile, **changes: object) -> PreparedLimits:
    return prepare_limits(cluster, replace(SETTINGS, **changes), known.path)  # type: ignore[arg-type]


def test_what_is_of_something_else_is_refused_with_what_differs(
    cluster: Cluster, known: LimitsFile
) -> None:
    before = known.path.read_bytes()
    with pytest.raises(LimitsRefused, match="consumer_groups was 5, and is 7") as refused:
        prepare(cluster, known, consumer_groups=7)

    assert "--out" in str(refused.value.hint)
    assert known.path.read_bytes() == before
    known.write(replace(known.load(), cluster_id="other"))
    with pytest.raises(LimitsRefused, match="is for cluster other"):
        prepare(cluster, known)


def test_a_result_that_is_there_is_not_measured_again_and_another_safe_share_needs_no_trials(
    cluster: Cluster, known: LimitsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "live_traffic", lambda _: ("group billing has members",))

    assert prepare(cluster, known).limits == known.load()
    prepared = prepare(cluster, known, safe_share=0.4)

    assert not prepared.limits.missing
    half = cap_curve(prepared.limits).cap(1024).messages_per_s
    assert half == pytest.approx(cap_curve(known.load()).cap(1024).messages_per_s / 2)


def test_more_trials_resume_a_search_whose_result_is_wide(cluster: Cluster, out: Path) -> None:
    few = replace(SETTINGS, trials=4)
    wide, _ = measured(cluster, prepare_limits(cluster, few, out))
    assert wide.boundaries[0].end is End.WIDE

    more = prepare_limits(cluster, SETTINGS, out)
    limits, _ = measured(cluster, more)

    assert limits.boundaries[0].end is End.NARROW
    assert limits.trials[:4] == wide.trials


def test_a_size_more_is_no_other_setting(cluster: Cluster, known: LimitsFile) -> None:
    more = prepare(cluster, known, message_bytes=(1024, 10_240))
    host = ModelledHost(cluster)

    limits, _ = measured(cluster, more, host)

    assert {point.message_bytes for point, _ in host.modelled.tried} == {10_240}
    assert [boundary.message_bytes for boundary in limits.boundaries] == [1024, 10_240]


def test_a_file_that_changed_meanwhile_is_refused_and_nothing_is_touched(
    cluster: Cluster, known: LimitsFile
) -> None:
    prepared = prepare(cluster, known, message_bytes=(1024, 100))
    known.write(replace(known.load(), trials=()))
    host = ModelledHost(cluster)

    with pytest.raises(LimitsRefused, match="has changed"):
        measured(cluster, prepared, host)

    assert host.begun == []
