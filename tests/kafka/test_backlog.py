"""Taking the backlog: where it starts and ends, and when that is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drainer.errors import OffsetMissing, Refused, TopicMissing, UsageError
from drainer.kafka.backlog import (
    AtOffset,
    AtTime,
    Backlog,
    Committed,
    Earliest,
    End,
    Otherwise,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    """One partition with offsets 0 to 9."""
    made = Topic(bootstrap, topic_name)
    made.produce("abcdefghij")
    return made


def span(backlog: Backlog, partition: int = 0) -> tuple[int, int]:
    part = backlog.partitions[partition]
    return part.start, part.end


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("committed", Committed()),
        ("committed-or-earliest", Committed(Otherwise.EARLIEST)),
        ("committed-or-end", Committed(Otherwise.END)),
        ("earliest", Earliest()),
        ("12", AtOffset(12)),
        ("@2026-11-20T18:00Z", AtTime(1795197600000)),
        ("@2026-11-20T19:00+01:00", AtTime(1795197600000)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, parsed: object) -> None:
    assert parse_from(text) == parsed


def test_a_time_without_a_zone_is_local() -> None:
    moment = datetime(2026, 11, 20, 18, 0).astimezone()
    assert parse_until("@2026-11-20T18:00") == AtTime(round(moment.timestamp() * 1000))
    assert parse_until("end") == End()


@pytest.mark.parametrize("text", ["", "latest", "-1", "@", "@yesterday", "1.5", "@1900-01-01"])
def test_what_is_none_of_them_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="neither"):
        parse_from(text)
    with pytest.raises(UsageError, match="neither"):
        parse_until(text)


def test_it_spans_from_the_committed_offset_to_the_end(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 4})
    backlog = freeze(cluster, topic.name, group)
    assert span(backlog) == (4, 10)
    assert backlog.partitions[0].committed == 4
    assert backlog.cluster_id == cluster.cluster_id()
    assert backlog.topic_id == cluster.topic(topic.name).topic_id
    assert backlog.offsets == 6
    assert backlog.partitions[0].skipped_before == 0


def test_what_comes_later_is_not_part_of_it(cluster: Cluster, topic: Topic, group: str) -> None:
    backlog = freeze(cluster, topic.name, group, from_=Earliest())
    topic.produce("klm")
    assert span(backlog) == (0, 10)


def test_without_a_committed_offset_the_start_is_never_guessed(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(f"{group}-other", topic.name, {0: 4})
    with pytest.raises(OffsetMissing, match="no committed offset") as raised:
        freeze(cluster, topic.name, group)
    assert "committed-or-earliest" in (raised.value.hint or "")
    assert f"{group}-other" in str(raised.value)


def test_partitions_without_a_committed_offset_are_named(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)
    topic.produce("ab", partition=0)
    topic.produce("ab", partition=1)
    cluster.alter_committed(group, topic_name, {0: 1})
    with pytest.raises(OffsetMissing, match=rf"on 1 of 3 partitions \({topic_name}/1\)"):
        freeze(cluster, topic_name, group)
    backlog = freeze(cluster, topic_name, group, [0, 2])
    assert span(backlog, 0) == (1, 2)
    assert span(backlog, 2) == (0, 0)  # an empty one needs no offset


def test_records_deleted_before_the_start_are_refused_and_counted(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 2})
    topic.delete_before(6)
    with pytest.raises(Refused, match="up to 4 records") as raised:
        freeze(cluster, topic.name, group)
    assert "--from committed-or-earliest" in (raised.value.hint or "")
    assert span(freeze(cluster, topic.name, group, from_=Earliest())) == (6, 10)
    with pytest.raises(Refused, match="up to 4 records"):
        freeze(cluster, topic.name, group, from_=Committed(Otherwise.END))


def test_a_group_that_committed_on_some_partitions_begins_elsewhere_as_it_is_said(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=200)
    for partition in (0, 1, 2, 150):
        topic.produce("abcde", partition=partition)
    topic.delete_before(2, partition=1)
    topic.delete_before(1, partition=2)
    cluster.alter_committed(group, topic_name, {0: 3, 1: 1, **dict.fromkeys(range(50, 100), 0)})

    begun = freeze(cluster, topic_name, group, from_=Committed(Otherwise.EARLIEST))
    looked = freeze(cluster, topic_name, group, to_look=True)
    ended = freeze(cluster, topic_name, group, [0, 2, 150], from_=Committed(Otherwise.END))

    assert [span(begun, number) for number in (0, 1, 2, 150)] == [(3, 5), (2, 5), (1, 5), (0, 5)]
    assert [span(ended, number) for number in (0, 2, 150)] == [(3, 5), (5, 5), (5, 5)]
    assert begun == looked
    lost, without = begun.remarks
    assert lost.endswith(f"{topic_name}/1 (offsets 1 to 1)")
    assert "on 2 of 200 partitions" in without
    assert without.endswith("the backlog begins at the earliest record there")


def test_a_long_list_of_partitions_is_shortened(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=20)
    for partition in range(20):
        topic.produce("a", partition=partition)
    cluster.alter_committed(group, topic_name, {0: 0})
    with pytest.raises(OffsetMissing, match=f"{topic_name}/5 and 14 more"):
        freeze(cluster, topic_name, group)


def test_an_offset_beyond_the_log_tells_of_another_topic(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 11})
    with pytest.raises(Refused, match="truncated, or recreated"):
        freeze(cluster, topic.name, group)


@pytest.mark.parametrize("start", [Earliest(), AtOffset(3)])
def test_a_group_is_never_moved_backwards(
    cluster: Cluster, topic: Topic, group: str, start: Earliest | AtOffset
) -> None:
    cluster.alter_committed(group, topic.name, {0: 4})
    with pytest.raises(Refused, match="backwards"):
        freeze(cluster, topic.name, group, from_=start)


def test_skipping_ahead_is_allowed_and_shown(cluster: Cluster, topic: Topic, group: str) -> None:
    cluster.alter_committed(group, topic.name, {0: 4})
    backlog = freeze(cluster, topic.name, group, from_=AtOffset(7))
    assert span(backlog) == (7, 10)
    assert backlog.partitions[0].skipped_before == 3


@pytest.mark.parametrize("start", [AtOffset(11), AtOffset(2)])
def test_a_start_outside_of_the_log_is_refused(
    cluster: Cluster, topic: Topic, group: str, start: AtOffset
) -> None:
    topic.delete_before(5)
    with pytest.raises(Refused, match="holds offsets 5 to 10"):
        freeze(cluster, topic.name, group, from_=start)


def test_it_may_end_earlier_but_not_later(cluster: Cluster, topic: Topic, group: str) -> None:
    cluster.alter_committed(group, topic.name, {0: 4})
    assert span(freeze(cluster, topic.name, group, until=AtOffset(6))) == (4, 6)
    assert span(freeze(cluster, topic.name, group, until=AtOffset(1))) == (4, 4)
    with pytest.raises(Refused, match="beyond the end"):
        freeze(cluster, topic.name, group, until=AtOffset(11))


def test_times_are_looked_up_in_the_log(cluster: Cluster, topic: Topic, group: str) -> None:
    now = datetime.now(UTC)
    past, future = (
        AtTime(round((now + timedelta(hours=hours)).timestamp() * 1000)) for hours in (-1, 1)
    )
    assert span(freeze(cluster, topic.name, group, from_=past, until=future)) == (0, 10)
    assert span(freeze(cluster, topic.name, group, from_=future)) == (10, 10)
    assert span(freeze(cluster, topic.name, group, from_=past, until=past)) == (0, 0)


def test_one_offset_is_not_the_offset_of_several_partitions(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    Topic(bootstrap, topic_name, partitions=2).produce("ab")
    with pytest.raises(UsageError, match="2 partitions"):
        freeze(cluster, topic_name, group, from_=AtOffset(1))
    assert span(freeze(cluster, topic_name, group, [0], AtOffset(1))) == (1, 2)


def test_a_partition_that_does_not_exist_is_refused(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    with pytest.raises(TopicMissing, match=f"{topic.name}/5"):
        freeze(cluster, topic.name, group, [5], Earliest())


def test_an_open_transaction_ends_it_unless_uncommitted_records_are_wanted(
    cluster: Cluster, bootstrap: str, topic: Topic, group: str
) -> None:
    producer = topic.open_transaction("kl")
    assert span(freeze(cluster, topic.name, group, from_=Earliest())) == (0, 10)
    level = ["isolation.level=read_uncommitted"]
    with Cluster.connect(ClientSettings.load(bootstrap, None, level)) as uncommitted:
        assert span(freeze(uncommitted, topic.name, group, from_=Earliest())) == (0, 12)
    producer.abort_transaction()
