"""Taking the backlog: where it starts and ends, and when that is refused."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest

from drainer.errors import OffsetMissing, Refused, TopicMissing, UsageError
from drainer.kafka.backlog import (
    CLOCK_SKEW_MS,
    COMMITTED_OR_EARLIEST,
    COMMITTED_OR_END,
    EARLIEST,
    Backlog,
    Bound,
    DrainRange,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic

NOON_MS = 1_772_366_400_000


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
        ("committed", Bound("committed")),
        ("committed-or-earliest", COMMITTED_OR_EARLIEST),
        ("committed-or-end", COMMITTED_OR_END),
        (" earliest ", EARLIEST),
        ("12", Bound(offset=12)),
        ("@2026-11-20T18:00Z", Bound(time_ms=1795197600000)),
        ("@2026-11-20T19:00+01:00", Bound(time_ms=1795197600000)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, parsed: Bound) -> None:
    assert parse_from(text) == parsed
    assert parse_from(str(parsed)) == parsed


def test_a_time_without_a_zone_is_local() -> None:
    moment = datetime(2026, 11, 20, 18, 0).astimezone()
    assert parse_until("@2026-11-20T18:00") == Bound(time_ms=round(moment.timestamp() * 1000))


@pytest.mark.parametrize(
    "text",
    ["", "latest", "-1", "@", "@yesterday", "1.5", "@1900-01-01", "@9999-12-31T23:59:59.9999Z"],
)
def test_what_is_none_of_them_is_a_usage_error(text: str) -> None:
    for parse in (parse_from, parse_until):
        with pytest.raises(UsageError, match="is not one of"):
            parse(text)


def test_it_spans_from_the_committed_offset_to_the_end_of_now(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 4})
    backlog = freeze(cluster, topic.name, group)
    topic.produce("klm")
    assert span(backlog) == (4, 10)
    assert backlog.partitions[0].committed == 4
    assert backlog.cluster_id == cluster.cluster_id
    assert backlog.topic_id == cluster.topic(topic.name).topic_id
    assert backlog.offsets == 6
    assert backlog.partitions[0].skipped_before == 0

    ahead = freeze(cluster, topic.name, group, from_=Bound(offset=7), until=Bound(offset=12))
    assert span(ahead) == (7, 12)
    assert ahead.partitions[0].skipped_before == 3
    assert span(freeze(cluster, topic.name, group, until=Bound(offset=1))) == (4, 4)
    assert span(freeze(cluster, topic.name, group, until=parse_until("+2"))) == (4, 6)
    assert span(freeze(cluster, topic.name, group, until=parse_until("+99"))) == (4, 13)
    with pytest.raises(Refused, match="beyond the end"):
        freeze(cluster, topic.name, group, until=Bound(offset=14))
    for start in (EARLIEST, Bound(offset=3)):
        with pytest.raises(Refused, match="backwards"):
            freeze(cluster, topic.name, group, from_=start)
    with pytest.raises(TopicMissing, match=f"{topic.name}/5"):
        freeze(cluster, topic.name, group, [5])


def test_without_a_committed_offset_the_start_is_never_guessed(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=20)
    for partition in range(20):
        topic.produce("ab", partition=partition)
    with pytest.raises(OffsetMissing, match=f"group {group} does not exist") as raised:
        freeze(cluster, topic_name, group)
    assert "committed-or-earliest" in (raised.value.hint or "")
    cluster.alter_committed(f"{group}-v2", topic_name, {0: 1})
    meant = rf"does not exist.*; did you mean {group}-v2\b"
    with pytest.raises(OffsetMissing, match=meant):
        freeze(cluster, topic_name, group)
    for start in (EARLIEST, COMMITTED_OR_END):
        (remark,) = freeze(cluster, topic_name, group, from_=start).remarks
        assert re.search(meant, remark)

    cluster.alter_committed(group, topic_name, {0: 1})
    with pytest.raises(OffsetMissing, match=rf"19 of 20 .*{topic_name}/5 and 14 more"):
        freeze(cluster, topic_name, group)
    topic.delete_before(2, partition=3)  # It has no records now, which does not change the name.
    with pytest.raises(OffsetMissing, match=f"did you mean {group}-v2"):
        freeze(cluster, topic_name, f"{group}-v3")
    with pytest.raises(UsageError, match="2 partitions"):
        freeze(cluster, topic_name, group, [0, 1], Bound(offset=1))
    with pytest.raises(UsageError, match="2 partitions") as refused:
        freeze(cluster, topic_name, group, [0, 1], EARLIEST, Bound(offset=1))
    assert "--until +1 for that many offsets of each" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="needs a group"):
        freeze(cluster, topic_name, None)


def test_a_group_that_committed_on_some_partitions_begins_on_the_others_as_wanted(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=20)
    for partition in (0, 1, 2, 15):
        topic.produce("abcde", partition=partition)
    topic.delete_before(2, partition=1)
    topic.delete_before(1, partition=2)
    cluster.alter_committed(group, topic_name, {0: 3, 1: 1, **dict.fromkeys(range(5, 10), 0)})

    begun = freeze(cluster, topic_name, group, from_=COMMITTED_OR_EARLIEST)
    looked = freeze(cluster, topic_name, group, only_show=True)
    ended = freeze(cluster, topic_name, group, [0, 2, 15], from_=COMMITTED_OR_END)
    empty = freeze(cluster, topic_name, group, [0, 3])

    assert [span(begun, number) for number in (0, 1, 2, 15)] == [(3, 5), (2, 5), (1, 5), (0, 5)]
    assert [span(ended, number) for number in (0, 2, 15)] == [(3, 5), (5, 5), (5, 5)]
    assert span(empty, 3) == (0, 0), "an empty one needs no offset"
    assert begun == looked
    lost, without = begun.remarks
    assert lost.endswith(f"{topic_name}/1 (offsets 1 to 1)")
    assert "on 2 of 20 partitions" in without
    assert without.endswith("the backlog starts at the earliest record")


def test_records_deleted_before_the_start_are_refused_and_counted(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 2})
    topic.delete_before(6)
    for start in (Bound("committed"), COMMITTED_OR_END):
        with pytest.raises(Refused, match="up to 4 records") as raised:
            freeze(cluster, topic.name, group, from_=start)
        assert "--from committed-or-earliest" in (raised.value.hint or "")
    assert span(freeze(cluster, topic.name, group, from_=EARLIEST)) == (6, 10)
    for offset in (11, 2):
        with pytest.raises(Refused, match="has offsets 6 to 10"):
            freeze(cluster, topic.name, group, from_=Bound(offset=offset))


def test_an_offset_beyond_the_log_is_of_another_topic(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    cluster.alter_committed(group, topic.name, {0: 11})
    with pytest.raises(Refused, match="truncated or recreated"):
        freeze(cluster, topic.name, group)


def test_an_open_transaction_ends_it_unless_uncommitted_records_are_wanted(
    cluster: Cluster, bootstrap: str, topic: Topic, group: str
) -> None:
    producer = topic.open_transaction("kl")
    backlog = freeze(cluster, topic.name, group, from_=EARLIEST)
    assert span(backlog) == (0, 10)
    [left_out] = backlog.open_transactions
    assert (left_out.offset, left_out.offsets) == (10, 2)
    level = ["isolation.level=read_uncommitted"]
    with Cluster.connect(ClientSettings.load(bootstrap, None, level)) as uncommitted:
        assert span(freeze(uncommitted, topic.name, group, from_=EARLIEST)) == (0, 12)
    producer.abort_transaction()


def test_a_time_is_the_first_record_by_offset_that_is_as_late(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)
    topic.stamp([("k", NOON_MS + n) for n in (5, 1, 3, 9, 2)])
    topic.stamp([("k", NOON_MS + n) for n in (5, 6)], partition=1)
    for later, first in ((0, 0), (5, 0), (6, 3), (9, 3), (10, 5)):
        at = Bound(time_ms=NOON_MS + later)
        assert span(freeze(cluster, topic_name, None, [0], at)) == (first, 5)
        assert span(freeze(cluster, topic_name, None, [0], EARLIEST, at)) == (0, first)
    found = freeze(cluster, topic_name, None, from_=Bound(time_ms=NOON_MS + 6))
    assert [span(found, number)[0] for number in range(3)] == [3, 1, 0]

    producer = topic.open_transaction("a", partition=1)  # of now, and not shown yet
    assert span(freeze(cluster, topic_name, None, [1], Bound(time_ms=NOON_MS + 7)), 1) == (2, 2)
    producer.abort_transaction()


def test_a_time_after_all_records_is_refused_on_a_compacted_topic(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    """Records that compaction removed stay in the index by time; brokers name none for it."""
    topic = Topic(bootstrap, topic_name, config={"cleanup.policy": "compact,delete"})
    topic.stamp([("a", NOON_MS), ("b", NOON_MS + 2)])
    late, between = Bound(time_ms=NOON_MS + 3), Bound(time_ms=NOON_MS + 1)
    for bounds in ((late, parse_until("end")), (EARLIEST, late)):
        with pytest.raises(Refused, match="is compacted") as raised:
            freeze(cluster, topic_name, None, None, *bounds)
        assert "Give an offset" in (raised.value.hint or "")
    assert freeze(cluster, topic_name, None, None, between).partitions[0].start == 1
    assert freeze(cluster, topic_name, None, None, EARLIEST, between).partitions[0].end == 1


BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


def test_a_range_of_times_spans_all_offsets_that_may_hold_its_records(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.stamp([("k", NOON_MS + n) for n in (5, 1, 3, 9, 2)])
    again = DrainRange(Bound(time_ms=NOON_MS + 3), Bound(time_ms=NOON_MS + 4), commits=False)
    assert span(again.freeze(cluster, topic_name, "g")) == (0, 5)
    late = DrainRange(Bound(time_ms=NOON_MS + 6), Bound(time_ms=NOON_MS + 7), commits=False)
    assert span(late.freeze(cluster, topic_name, "g")) == (3, 5)
    up_to = DrainRange(Bound(time_ms=NOON_MS), Bound(offset=2), commits=False)
    assert span(up_to.freeze(cluster, topic_name, "g")) == (0, 2)

    commits = DrainRange(EARLIEST, Bound(time_ms=NOON_MS + 4))
    with pytest.raises(Refused, match="producers set the times"):
        commits.freeze(cluster, topic_name, "g")
    new, remark = commits.freeze(cluster, topic_name, "g", only_show=True).remarks
    assert new.startswith("group g "), new
    assert "a drain refuses that" in remark


def test_times_that_brokers_set_bound_the_end_of_a_range_but_for_their_clocks(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, config=BY_BROKER)
    topic.produce("abc")
    now_ms = round(time.time() * 1000)
    for until_ms, end in ((now_ms - 2 * CLOCK_SKEW_MS, 0), (now_ms - CLOCK_SKEW_MS // 2, 3)):
        again = DrainRange(EARLIEST, Bound(time_ms=until_ms), commits=False)
        assert span(again.freeze(cluster, topic_name, "g")) == (0, end)
    commits = DrainRange(EARLIEST, Bound(time_ms=now_ms + CLOCK_SKEW_MS))
    assert span(commits.freeze(cluster, topic_name, "g")) == (0, 3)


def test_times_of_producers_from_before_brokers_set_them_bound_no_range(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    """A look-up finds the record of the future, and would end the range there."""
    topic = Topic(bootstrap, topic_name, config={"message.timestamp.after.max.ms": str(2**62)})
    now_ms = round(time.time() * 1000)
    topic.stamp([("k", now_ms + 10 * CLOCK_SKEW_MS), ("k", NOON_MS)])
    topic.configure(BY_BROKER)
    topic.produce("a")

    until = Bound(time_ms=now_ms - 2 * CLOCK_SKEW_MS)
    again = DrainRange(EARLIEST, until, commits=False)
    assert span(again.freeze(cluster, topic_name, "g")) == (0, 3)
    with pytest.raises(Refused, match="producers set the times"):
        DrainRange(EARLIEST, until).freeze(cluster, topic_name, "g")


def test_a_compacted_topic_has_a_range_of_times_to_its_end(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, config={**BY_BROKER, "cleanup.policy": "compact"})
    topic.stamp([("a", NOON_MS), ("b", NOON_MS)])
    again = DrainRange(EARLIEST, Bound(time_ms=NOON_MS), commits=False)
    assert span(again.freeze(cluster, topic_name, "g")) == (0, 2)
