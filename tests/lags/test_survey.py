"""Groups are surveyed on a real broker: every partition of every topic, and nothing is touched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import drainer
from drainer.errors import Refused
from drainer.kafka.cluster import LATEST, Cluster
from drainer.kafka.settings import ClientSettings
from drainer.lags.survey import Lags, survey_groups
from drainer.lags.verdict import GroupLag, PartitionLag, Verdict
from drainer.model.option import Lag
from kafka.members import share_member
from kafka.test_commit import commit_raw
from kafka.topic import Topic, eventually
from scenarios.brokers import Brokers

DAY_MS = 86_400_000
MANY = 220


@pytest.fixture
def settings(bootstrap: str) -> ClientSettings:
    return ClientSettings.load(bootstrap)


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Iterator[Topic]:
    made = Topic(bootstrap, topic_name, 3)
    yield made
    made.discard()


@pytest.fixture
def group(topic: Topic) -> str:
    return f"g-{topic.name}"


def only(found: Lags) -> GroupLag:
    (one,) = found.groups
    return one


def by_number(found: Lags) -> dict[int, PartitionLag]:
    return {each.partition: each for each in only(found).partitions}


def test_partitions_without_an_offset_count(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    """A dashboard that shows only where a group has committed says that it is done."""
    for number in range(3):
        topic.produce(["v"] * 10, partition=number)
    cluster.alter_committed(group, topic.name, {0: 10})

    found = survey_groups(settings, group, 0.1)

    assert (only(found).behind, only(found).untouched) == (20, 2)
    assert only(found).verdict is Verdict.NEVER
    assert [by_number(found)[n].behind for n in range(3)] == [0, 10, 10]
    assert by_number(found)[0].verdict is Verdict.KEEPING_UP
    assert cluster.committed(group, topic.name, range(3)) == {0: 10, 1: None, 2: None}


def test_members_are_named_where_they_read_and_missed_where_they_do_not(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    """One reads a topic of the group, and nobody reads the other, where it has an offset."""
    topic.produce(["v"])
    other = Topic(topic.bootstrap, f"{topic.name}-other")
    other.produce(["v"] * 5)
    cluster.alter_committed(group, other.name, {0: 0})
    for protocol in ("classic", "consumer"):
        member = topic.live_member(group, "indexer-7", group_protocol=protocol)
        try:
            found = only(survey_groups(settings, group, 0.1))
        finally:
            member.close()
        assert (found.members, found.state, found.unread) == (1, "stable", 1)
        readers = {each.topic: each.reader for each in found.partitions}
        assert readers == {topic.name: "indexer-7 on 127.0.0.1", other.name: None}
    other.discard()


@contextmanager
def moving(settings: ClientSettings, group: str, topic: Topic, offsets: range) -> Iterator[None]:
    """Commits these offsets of partition 0, one after the other, as fast as it can."""
    over = threading.Event()

    def move() -> None:
        with Cluster.connect(settings) as cluster:
            for offset in offsets:
                if over.wait(0.05):
                    return
                cluster.alter_committed(group, topic.name, {0: offset})

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_group_that_moves_is_done_at_a_time(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.produce(["v"] * 2_000)
    cluster.alter_committed(group, topic.name, {0: 10, 1: 0, 2: 0})
    with moving(settings, group, topic, range(11, 1_000)):
        eventually(lambda: cluster.committed(group, topic.name, [0]) != {0: 10}, "it moves")
        found = survey_groups(settings, group, 1.0)

    part = by_number(found)[0]
    assert part.verdict is only(found).verdict is Verdict.CATCHING_UP
    assert part.commits_per_s is not None
    assert part.done_in_s == pytest.approx((part.behind or 0) / part.commits_per_s)
    assert only(found).done_in_s == part.done_in_s
    assert part.arrivals_per_s == 0


def test_the_oldest_record_has_an_age_and_loses_the_race_with_retention(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.configure({"retention.ms": str(3 * DAY_MS)})
    now_ms = survey_groups_time(settings, group, cluster, topic)
    topic.stamp([("k", now_ms - 9 * DAY_MS // 4), ("k", now_ms)])

    part = by_number(survey_groups(settings, group, 0.1))[0]

    assert part.age_s == pytest.approx(9 * DAY_MS // 4 / 1000, abs=60)
    assert part.lost_in_s == pytest.approx(3 * DAY_MS // 4 / 1000, abs=60)
    assert part.verdict is Verdict.LOSING


def survey_groups_time(settings: ClientSettings, group: str, cluster: Cluster, topic: Topic) -> int:
    """Commit offset 0, and return the time of a survey that finds nothing behind it."""
    cluster.alter_committed(group, topic.name, {0: 0})
    return survey_groups(settings, group, 0.1).taken_ms


def test_what_transactions_leave_is_not_behind_and_what_they_hide_is(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.transact(["v"], commit=True)
    cluster.alter_committed(group, topic.name, {0: 1})
    assert only(survey_groups(settings, group, 0.1)).verdict is Verdict.KEEPING_UP

    producer = topic.open_transaction(["v"] * 4)
    found = only(survey_groups(settings, group, 0.1))
    producer.abort_transaction(30)

    assert (found.verdict, found.behind) == (Verdict.NEVER, 5)


@pytest.mark.parametrize(
    ("most", "expected"),
    [("10", True), ("9", False), ("1h", False), ("3d", True)],
    ids=str,
)
def test_a_limit_is_in_offsets_or_in_time(
    settings: ClientSettings,
    cluster: Cluster,
    topic: Topic,
    group: str,
    most: str,
    expected: bool,
) -> None:
    now_ms = survey_groups_time(settings, group, cluster, topic)
    topic.stamp([("k", now_ms - 2 * DAY_MS)] * 9 + [("k", now_ms)])

    assert only(survey_groups(settings, group, 0.1)).is_within(Lag.parse(most)) is expected


def test_where_no_record_was_read_a_few_offsets_are_not_called_a_standstill(
    settings: ClientSettings,
    cluster: Cluster,
    topic: Topic,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drainer.lags.survey.first_records", lambda *_: ({}, {}))
    for number, records in enumerate((3, 30)):
        topic.produce(["v"] * records, partition=number)
    cluster.alter_committed(group, topic.name, {0: 0, 1: 0})

    found = survey_groups(settings, group, 0.0)

    parts = by_number(found)
    assert (parts[0].behind, parts[0].verdict) == (3, Verdict.UNKNOWN)
    assert (parts[1].behind, parts[1].verdict) == (30, Verdict.NEVER)
    why = f"the time behind on {topic.name} is not known: no answer in time"
    assert found.remarks == (why,)
    assert only(found).is_within(Lag(messages=30))
    assert not only(found).is_within(Lag(seconds=1e9))


def test_markers_are_told_apart_on_any_number_of_partitions(
    bootstrap: str, settings: ClientSettings, cluster: Cluster, topic_name: str
) -> None:
    """An idle group on transactional topics has an offset of each partition left for ever."""
    topic, group = Topic(bootstrap, topic_name, MANY), f"g-{topic_name}"
    producer = topic.open_transaction([])
    for number in range(MANY):
        producer.produce(topic.name, "v", partition=number)
    producer.commit_transaction(60)
    places = {TopicPartition(topic.name, number): LATEST for number in range(MANY)}

    def ends() -> set[int]:
        found = cluster.admin.list_offsets(places).values()
        return {each.result().offset for each in found}

    eventually(lambda: ends() == {2}, "all markers are written")
    cluster.alter_committed(group, topic.name, dict.fromkeys(range(MANY), 1))

    found = only(survey_groups(settings, group, 0.1))

    assert (found.verdict, found.behind) == (Verdict.KEEPING_UP, 0)
    topic.discard()


def test_groups_at_different_offsets_of_a_partition_have_ages_of_their_own(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    now_ms = survey_groups_time(settings, group, cluster, topic)
    topic.stamp([("k", now_ms - days * DAY_MS) for days in (3, 2, 1)])
    for offset in range(3):
        cluster.alter_committed(f"{group}-{offset}", topic.name, {0: offset})

    found = survey_groups(settings, f"{group}-?", 0.1).groups

    ages = {each.group: each.age_s for each in found}
    assert ages == {
        f"{group}-{at}": pytest.approx(days * DAY_MS / 1000, abs=60)
        for at, days in enumerate((3, 2, 1))
    }


def test_metadata_of_other_clients_does_no_harm(
    settings: ClientSettings, topic: Topic, group: str
) -> None:
    for number in range(3):
        commit_raw(topic.bootstrap, group, topic.name, number, metadata="€é" * 3**number)
    for _ in range(5):
        found = by_number(survey_groups(settings, group, 0.0))
        assert [found[n].problem for n in (1, 2)] == [
            f"the group is at offset {n}, beyond the end of the log, 0" for n in (1, 2)
        ]


def test_a_pattern_finds_groups_and_a_misspelt_name_finds_similar_ones(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    for name in (f"{group}-a", f"{group}-b"):
        cluster.alter_committed(name, topic.name, {0: 0})

    found = survey_groups(settings, f"{group}-?", 0.1).groups
    assert [each.group for each in found] == [f"{group}-a", f"{group}-b"]
    with pytest.raises(Refused, match=f"{group}-c does not exist.*did you mean {group}-") as raised:
        survey_groups(settings, f"{group}-c", 0.1)
    assert "pattern" in (raised.value.hint or "")


def test_a_share_group_is_not_shown_as_one_that_keeps_up(
    settings: ClientSettings, topic: Topic, group: str
) -> None:
    with share_member(topic, group):
        found = only(survey_groups(settings, group, 0.0))
    assert (found.verdict, found.state) == (Verdict.UNKNOWN, "unknown")
    assert found.problem


def test_a_deleted_topic_is_unknown(
    settings: ClientSettings, cluster: Cluster, bootstrap: str, topic: Topic, group: str
) -> None:
    """Its offsets stay while the group has a member that read it."""
    member = topic.live_member(group)
    topic.delete()
    found = only(survey_groups(settings, group, 0.0))
    member.close()
    assert found.verdict is Verdict.UNKNOWN
    topic.create()


def test_a_program_gets_the_same_and_prints_it(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.produce(["v"] * 3)
    cluster.alter_committed(group, topic.name, {0: 0})
    found = drainer.lag(
        client={"bootstrap.servers": topic.bootstrap},
        group=group,
        over_s=0.1,
        on_message=lambda text: None,
    )
    assert only(found).behind == 3
    assert str(found).startswith(f"{group}: 3 offsets (")


@pytest.mark.long
def test_what_a_dead_broker_leads_is_unknown_and_the_rest_is_judged(tmp_path: Path) -> None:
    properties = {"offsets.topic.replication.factor": "1", "default.replication.factor": "1"}
    with Brokers(tmp_path, 2, properties=properties, die_with_parent=True) as brokers:
        topic = Topic(brokers.bootstrap_servers, "orders", 4)
        for number in range(4):
            topic.produce(["v"] * 5, partition=number)
        settings = ClientSettings.load(brokers.each[0].bootstrap_servers)
        with Cluster.connect(settings, 60) as cluster:
            led = cluster.topic("orders").leaders
            for number in range(6):
                cluster.alter_committed(f"g{number}", "orders", dict.fromkeys(range(4), 5))
        brokers.each[1].kill()
        gone = {n for n, at in led.items() if at == brokers.each[1].bootstrap_servers}

        found = survey_groups(settings, "g*", 0.1)

        for group in found.groups:
            assert group.verdict is Verdict.UNKNOWN
            if not group.problem:
                assert {p.partition for p in group.partitions if p.problem} == gone
        assert any(not each.problem for each in found.groups)
