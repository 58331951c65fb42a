"""The lag that a drain that follows its log tells: never less than it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_partition, a_plan, changed
from core.messages import one_partition
from drainer.engine import following
from drainer.engine.following import Following, LagWatch
from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import BrokerUnreachable, Interrupted, OffsetMoved, TopicMissing
from drainer.kafka.cluster import LogBounds
from drainer.kafka.following import FollowedLog
from drainer.model.account import PartitionPlan
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range
from drainer.model.status import LagStatus
from engine.made_up_kafka import CLIENT, TOPIC, TOPIC_ID, kafka_of, log_of
from fake_kafka import FakeCluster


def test_the_time_is_unknown_until_the_first_end_is_reached() -> None:
    watch = LagWatch({})
    watch.observe(10.0, {0: 100, 1: 50})

    assert watch.lag(10.0, {0: 99, 1: 50}).seconds is None
    watch.observe(12.0, {0: 120, 1: 50})
    lag = watch.lag(13.0, {0: 110, 1: 50})

    assert (lag.messages, lag.seconds) == (10, 3.0)
    assert watch.lag(14.0, {0: 120, 1: 50}).seconds == 2.0


steps = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 2)), min_size=1, max_size=60
)


@given(steps, st.integers(2, 50))
def test_what_was_written_before_that_time_is_done(
    steps: list[tuple[int, int, float]], kept: int
) -> None:
    before, following.LOOKS_MOST = following.LOOKS_MOST, kept
    try:
        watch, end, done, now_s, written = LagWatch({}), 0, 0, 0.0, list[float]()
        for added, finished, took_s in steps:
            written += [now_s] * added
            end += added
            now_s += took_s
            done = min(end, done + finished)
            watch.observe(now_s, {0: end})
            lag = watch.lag(now_s, {0: done})
            assert lag.messages == end - done
            if done < end and lag.seconds is not None:
                assert lag.seconds >= 0
                assert done >= sum(at_s < now_s - lag.seconds - 1e-9 for at_s in written)
    finally:
        following.LOOKS_MOST = before


class SlowBrokers:
    """Brokers that take three seconds to give each answer, or none. The log is empty.

    ``lags`` are the lags that the drain tells after each answer.
    """

    def __init__(self, *answers: bool) -> None:
        self._answers = iter(answers)
        self._now_s = 0.0
        runtime = replace(THIS_PROCESS, monotonic=lambda: self._now_s)
        checkpointer: Any = None  # No end moves.
        self._following = Following(
            *(self, one_partition(0), checkpointer, runtime),
            until=lambda: None,
            has_work=lambda: False,
            ended=lambda: None,
            print_line=print,
        )
        self.lags: list[LagStatus | None] = []
        with pytest.raises(Interrupted):
            asyncio.run(self._following.run())

    def ends(self) -> Mapping[int, PartitionPlan]:
        if self._now_s:
            self.lags.append(self._following.lag)
        self._now_s += 3.0
        answer = next(self._answers, None)
        if answer is None:
            raise Interrupted("the test is over")
        if not answer:
            raise BrokerUnreachable("no answer")
        return {0: a_partition(0, 0)}

    def read_to(self, partitions: object) -> None: ...

    def finish(self) -> None: ...


def test_what_is_added_while_the_brokers_answer_may_not_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.0)

    assert SlowBrokers(True, True).lags == [LagStatus(0, 3.0), LagStatus(0, 3.0)]


def test_while_the_brokers_give_no_answer_the_lag_in_time_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.0)

    lags = SlowBrokers(False, True, False, False).lags

    assert lags == [LagStatus(0, None), *(LagStatus(0, seconds) for seconds in (3.0, 6.0, 9.0))]


def test_before_the_first_look_the_drain_is_behind_by_its_backlog() -> None:
    assert LagWatch({0: 100, 1: 50}).lag(0.0, {0: 10, 1: 50}) == LagStatus(90, None)


class YoungPartition(FakeCluster):
    """A broker that does not know the log of a new partition yet."""

    knows = False

    def log_bounds(self, topic: str, partitions: Any, isolation: str) -> dict[int, LogBounds]:
        if 1 in partitions and not self.knows:
            raise TopicMissing(f"topic {topic} or a partition of it does not exist")
        return super().log_bounds(topic, partitions, isolation)


def a_followed_plan(**more: Any) -> OffsetPlan:
    return changed(a_plan(3), topic=TOPIC, topic_id=TOPIC_ID, **more)


def test_a_partition_that_a_broker_does_not_know_yet_is_no_deleted_topic() -> None:
    cluster = YoungPartition(kafka_of({0: log_of(["a"]), 1: log_of(["b"])}), CLIENT)
    log = FollowedLog(cluster, a_followed_plan())

    with pytest.raises(BrokerUnreachable):
        log.ends()
    cluster.knows = True

    assert [*log.ends()] == [0, 1]


def test_no_partition_joins_those_that_were_chosen_even_if_they_were_all() -> None:
    kafka = kafka_of({0: log_of(["a"]), 1: log_of(["b"])})

    log = FollowedLog(FakeCluster(kafka, CLIENT), a_followed_plan(partitions_chosen=True))

    assert [*log.ends()] == [0]


@pytest.mark.parametrize("committed", [2, 9])
def test_a_partition_joins_only_where_the_group_may_be(committed: int) -> None:
    kafka = kafka_of({0: log_of(["a"]), 1: log_of(["b"], ["c"], start=5)})
    kafka.committed[1] = committed

    with pytest.raises(OffsetMoved, match=rf"group billing is at {committed} on orders/1"):
        FollowedLog(FakeCluster(kafka, CLIENT), a_followed_plan()).ends()


@pytest.mark.parametrize(
    ("committed", "lost"), [(None, ((0, 5),)), (5, ())], ids=["unread", "handled"]
)
def test_what_an_added_partition_lost_before_it_joined_is_not_lost_silently(
    committed: int | None, lost: tuple[Range, ...]
) -> None:
    kafka = kafka_of({0: log_of(["a"]), 1: log_of(["b"], ["c"], start=5)})
    kafka.committed[1] = committed

    found = FollowedLog(FakeCluster(kafka, CLIENT), a_followed_plan()).ends()[1]

    assert (found.start, found.end, found.lost) == (5, 7, lost)


def test_a_drain_that_commits_nothing_reads_an_added_partition_from_its_beginning() -> None:
    kafka = kafka_of({0: log_of(["a"]), 1: log_of(["b"], ["c"])})
    kafka.committed[1] = 2  # A consumer goes on beside the drain.

    found = FollowedLog(FakeCluster(kafka, CLIENT), a_followed_plan(commits=False)).ends()[1]

    assert (found.start, found.end, found.prior) == (0, 2, None)
