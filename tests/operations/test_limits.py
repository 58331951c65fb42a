"""Measuring limits on a real cluster by modelled traffic: what is refused, what is removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pytest

from drainer.errors import Interrupted, LimitsRefused, Refused, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits import measure as operation
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import (
    LiveTraffic,
    Own,
    delete_own,
    own_things,
)
from drainer.limits.measure import keep_limits, measure_limits, prepare_limits
from drainer.limits.request import LimitsRequest
from drainer.limits.search.settings import Axis
from drainer.limits.trials import LimitsStatus, Pauses
from kafka.topic import eventually

from .modelled import ModelledCluster


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as connected:
        yield connected


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may use the broker meanwhile."""
    monkeypatch.setattr(operation, "live_traffic", lambda _: LiveTraffic())


@dataclass
class ModelledHost:
    """Modelled traffic on a real topic, which is seen to be there while the traffic is."""

    cluster: Cluster
    modelled: ModelledCluster = field(default_factory=ModelledCluster)
    begun: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    ended: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    @contextmanager
    def traffic(self, topic: str, groups: Sequence[str]) -> Iterator[ModelledCluster]:
        partitions = len(self.cluster.topic(topic).partitions)
        self.begun.append((topic, tuple(groups), partitions))
        yield self.modelled


def request(folder: Path, **changes: object) -> LimitsRequest:
    made = LimitsRequest(
        axis=Axis.MESSAGE_BYTES,
        values=(1024,),
        out=folder / "limits.json",
        partitions=3,
        window_s=20.0,
        pauses=Pauses(5.0, 30.0),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def is_gone(cluster: Cluster, topic: str) -> None:
    """Brokers hear of it one after the other."""
    eventually(lambda: topic not in own_things(cluster).topics, f"{topic} is gone")


def unheard(_: LimitsStatus) -> None:
    """Nobody looks."""


def test_the_topic_that_was_named_is_there_for_the_traffic_and_gone_afterwards(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked = request(tmp_path, consumer_groups=2)
    prepared = prepare_limits(cluster, asked)
    assert prepared.topic not in own_things(cluster).topics
    host = ModelledHost(cluster)

    measured = measure_limits(cluster, prepared, host, unheard)

    assert host.begun == [(prepared.topic, prepared.groups, 3)]
    assert prepared.groups == (f"{prepared.topic}.1", f"{prepared.topic}.2")
    assert host.ended
    assert measured.left is None
    is_gone(cluster, prepared.topic)
    assert measured.limits.complete
    assert LimitsFile(asked.out).load() == measured.limits
    assert [path.name for path in tmp_path.iterdir()] == ["limits.json"]


def test_a_stopped_run_leaves_no_topic_and_says_how_to_go_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked = request(tmp_path)
    prepared = prepare_limits(cluster, asked)
    host = ModelledHost(cluster, ModelledCluster(stop_at=4))

    with pytest.raises(Interrupted, match="2 trials are kept") as stopped:
        measure_limits(cluster, prepared, host, unheard)

    assert "Repeat the command" in str(stopped.value.hint)
    assert host.ended
    is_gone(cluster, prepared.topic)
    again = prepare_limits(cluster, asked)
    assert len(again.limits.trials) == 2
    host = ModelledHost(cluster)
    measured = measure_limits(cluster, again, host, unheard)
    assert measured.limits.complete
    assert len(host.modelled.tried) == len(measured.limits.trials) - 2


def test_who_may_not_make_the_topic_is_told_that_and_no_more(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_limits(cluster, request(tmp_path))

    def forbidden(*_: object) -> None:
        raise Refused("this user may not do that", hint="grant CREATE")

    monkeypatch.setattr(operation, "create_test_topic", forbidden)
    monkeypatch.setattr(operation, "delete_own", forbidden)
    with pytest.raises(Refused) as refused:
        measure_limits(cluster, prepared, ModelledHost(cluster), unheard)

    assert str(refused.value) == "this user may not do that"
    assert refused.value.hint == "grant CREATE"


def test_a_topic_that_can_not_be_removed_is_told_and_spoils_no_result(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_limits(cluster, request(tmp_path))

    def forbidden(*_: object) -> None:
        raise Refused("this user may not delete it")

    with monkeypatch.context() as patched:
        patched.setattr(operation, "delete_own", forbidden)
        measured = measure_limits(cluster, prepared, ModelledHost(cluster), unheard)

    assert measured.limits.complete
    assert prepared.topic in str(measured.left)
    assert measured.left is not None
    assert "drainer limits cleanup" in str(measured.left.hint)
    delete_own(cluster, Own((prepared.topic,), ()))


def test_others_on_the_cluster_are_refused_by_name_unless_it_is_shared(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = LiveTraffic({"orders": 12.34}, ("billing",))
    monkeypatch.setattr(operation, "live_traffic", lambda _: busy)

    with pytest.raises(Refused, match=r"orders is written to, 12\.3 messages/s") as refused:
        prepare_limits(cluster, request(tmp_path))

    assert "group billing has members" in str(refused.value)
    assert "--shared-cluster" in str(refused.value.hint)
    shared = prepare_limits(cluster, request(tmp_path, shared=True))
    assert shared.live == busy


def test_a_given_pace_does_not_get_above_the_most_either(cluster: Cluster, tmp_path: Path) -> None:
    asked = request(tmp_path, bytes_per_s_most=10e6, pace_bytes_per_s=3e6)
    assert prepare_limits(cluster, asked).limits.settings.producers_most == 3
    with pytest.raises(UsageError, match="one producer alone sends 30"):
        prepare_limits(cluster, replace(asked, pace_bytes_per_s=30e6))


@pytest.fixture
def known(cluster: Cluster, tmp_path: Path) -> LimitsRequest:
    """A request whose result is there."""
    asked = request(tmp_path)
    measure_limits(cluster, prepare_limits(cluster, asked), ModelledHost(cluster), unheard)
    return asked


def test_other_settings_are_refused_with_what_they_were(
    cluster: Cluster, known: LimitsRequest
) -> None:
    before = known.out.read_bytes()
    with pytest.raises(LimitsRefused, match="--consumer-groups was 5, and is 7") as refused:
        prepare_limits(cluster, replace(known, consumer_groups=7))

    assert "--out" in str(refused.value.hint)
    assert known.out.read_bytes() == before


def test_a_result_that_is_there_is_neither_measured_again_nor_is_the_cluster_looked_at(
    cluster: Cluster, known: LimitsRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "live_traffic", lambda _: LiveTraffic({"orders": 1.0}))

    assert prepare_limits(cluster, known).limits.complete


def test_a_size_more_is_no_other_setting(cluster: Cluster, known: LimitsRequest) -> None:
    more = prepare_limits(cluster, replace(known, values=(1024, 10_240)))
    host = ModelledHost(cluster)

    limits = measure_limits(cluster, more, host, unheard).limits

    assert {point.message_bytes for point, _ in host.modelled.tried} == {10_240}
    assert [boundary.value for boundary in limits.boundaries] == [1024, 10_240]


def test_another_safe_share_needs_no_other_trials(cluster: Cluster, known: LimitsRequest) -> None:
    before = LimitsFile(known.out).load().curve().cap(1024)
    prepared = prepare_limits(cluster, replace(known, safe_share=0.4))

    assert prepared.limits.complete
    keep_limits(prepared)

    after = LimitsFile(known.out).load().curve().cap(1024)
    assert after.messages_per_s == pytest.approx(before.messages_per_s / 2)


def test_limits_of_another_cluster_are_refused(cluster: Cluster, known: LimitsRequest) -> None:
    file = LimitsFile(known.out)
    file.write(replace(file.load(), cluster_id="other"))

    with pytest.raises(LimitsRefused, match="another cluster, other"):
        prepare_limits(cluster, known)


def test_a_file_that_changed_meanwhile_is_refused_and_nothing_is_touched(
    cluster: Cluster, known: LimitsRequest
) -> None:
    prepared = prepare_limits(cluster, replace(known, values=(1024, 100)))
    file = LimitsFile(known.out)
    file.write(replace(file.load(), trials=()))
    host = ModelledHost(cluster)

    with pytest.raises(LimitsRefused, match="has changed"):
        measure_limits(cluster, prepared, host, unheard)

    assert host.begun == []
