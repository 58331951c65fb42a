"""The hand-over to real consumers, which start once the drain says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import drainer
from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import EXIT_DONE, EXIT_FOUND, UsageError
from drainer.kafka.cluster import Cluster
from drainer.model import hand_over
from drainer.model.hand_over import HandOverState
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.hand_over import watch_hand_over
from drainer.sandbox.jars import classpath, kafka_jars
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic
from letters.libraries import running
from scenarios.brokers import delete_group

COUNT, MORE = 5, 7
Begin = Callable[["Group"], None]


@dataclass
class Group:
    """A topic of two partitions that is drained, and consumers that take over."""

    topic: Topic
    cluster: Cluster
    folder: Path
    running: list[threading.Thread] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    shown: list[Status] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"g-{self.topic.name}"

    def drain(self, begin: Begin, hand_over: str = "60s") -> Summary:
        """Drain it, and call ``begin`` as soon as drainer says that consumers are to start."""

        def hear(text: str) -> None:
            self.told.append(text)
            if text.startswith("Start the consumers"):
                begin(self)

        return drainer.drain(
            topic=self.topic.name,
            group=self.name,
            handler="count",
            client={"bootstrap.servers": self.topic.bootstrap},
            from_="earliest",
            plan=self.folder / "plan.json",
            settings=LocalSettings(hand_over_s=hand_over),
            on_message=hear,
            on_status=self.shown.append,
        )

    def produce(self) -> None:
        for partition in range(self.topic.partitions):
            self.topic.produce(["[]"] * MORE, partition=partition)

    def later(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self.running.append(thread)
        thread.start()

    def consume(self, **more: Any) -> None:
        """A consumer in another thread, which reads on and commits; ``at`` is where it seeks to."""
        at, commits_each = more.pop("at", None), more.pop("commits_each", False)

        def assigned(consumer: Consumer, places: list[TopicPartition]) -> None:
            if at is not None:
                for place in places:
                    place.offset = at
                consumer.assign(places)

        def consume() -> None:
            conf = {
                "bootstrap.servers": self.topic.bootstrap,
                "group.id": self.name,
                "client.id": "indexer-7",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 300,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
            consumer = Consumer(conf)
            consumer.subscribe([self.topic.name], on_assign=assigned)
            while not self.over.is_set():
                message = consumer.poll(0.05)
                if message is not None and commits_each:
                    consumer.commit(message=message, asynchronous=False)
                    self.over.wait(0.6)
            consumer.close()

        self.later(consume)

    def __post_init__(self) -> None:
        self.over = threading.Event()

    def end(self) -> None:
        self.over.set()
        for thread in self.running:
            thread.join()


@pytest.fixture
def group(bootstrap: str, cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[Group]:
    topic = Topic(bootstrap, topic_name, 2)
    for partition in range(2):
        topic.produce(["[]"] * COUNT, partition=partition)
    found = Group(topic, cluster, tmp_path)
    yield found
    found.end()
    topic.discard()


def states(summary: Summary) -> list[HandOverState]:
    assert summary.hand_over is not None
    return [each.state for each in summary.hand_over.partitions.values()]


def produce_and_consume(group: Group, **more: Any) -> None:
    group.produce()
    group.consume(**more)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumers_that_go_on_where_the_drain_ended_have_taken_over(
    protocol: str, group: Group
) -> None:
    summary = group.drain(lambda group: produce_and_consume(group, group_protocol=protocol))
    assert states(summary) == ["continued"] * 2
    assert "handed over: offsets show no gap, no overlap in 2 partitions" in str(summary)
    assert "indexer-7 on 127.0.0.1" in str(summary)
    assert summary.exit_code == EXIT_DONE
    start = f"Start the consumers of {group.name} now. They begin at offset {COUNT} of partition 0,"
    start += f" {COUNT} of partition 1."
    assert any(each.startswith(start) for each in group.told)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_consumer_takes_over(protocol: str, group: Group) -> None:
    program = Path(__file__).parents[1] / "kafka" / "GroupMember.java"
    where = group.topic.bootstrap, group.name, group.topic.name, protocol

    def consume() -> None:
        with running([classpath(kafka_jars())], program, *where):
            group.over.wait()

    def begin(group: Group) -> None:
        group.produce()
        group.later(consume)

    summary = group.drain(begin)
    assert states(summary) == ["continued"] * 2
    assert "java-7 on 127.0.0.1" in str(summary)


def test_consumers_with_nothing_to_read_show_no_more_than_that(group: Group) -> None:
    summary = group.drain(Group.consume, "4s")
    assert states(summary) == ["nothing-new"] * 2
    assert "have nothing to read yet" in str(summary)
    assert "no gap" not in str(summary)
    assert summary.exit_code == EXIT_DONE
    watching = [each for each in group.shown if each.progress.complete]
    assert len(watching) > 1, "the process shows that it lives, or a probe would end it"
    assert not any(each.health.in_trouble for each in watching)


def test_a_consumer_that_reads_all_of_it_again_is_an_overlap(group: Group) -> None:
    """It commits after each message: what is committed at once may be past the drain's end."""

    def begin_at_the_start(group: Group) -> None:
        group.consume(at=0, enable_auto_commit=False, commits_each=True)

    summary = group.drain(begin_at_the_start, "30s")
    assert states(summary) == ["overlap"] * 2
    assert "come again" in str(summary)


def test_a_group_that_goes_back_is_an_overlap(group: Group) -> None:
    def begin(group: Group) -> None:
        group.cluster.alter_committed(group.name, group.topic.name, {0: 2})

    summary = group.drain(begin, "2s")
    assert states(summary) == ["overlap", "no-reader"]
    assert "0: overlap, the group went back: 2 to 4 come again" in str(summary)
    assert "1: no-reader, no member of the group has it" in str(summary)
    assert "not handed over: 2 partitions (after 2s)" in str(summary)
    assert summary.exit_code == EXIT_FOUND
    assert summary.resume is None


def test_offsets_that_are_gone_as_soon_as_the_drain_ends_are_an_overlap(group: Group) -> None:
    drained = group.drain(lambda group: None, "0s")
    gone = {n: replace(each, committed=None) for n, each in drained.partitions.items()}
    delete_group(group.cluster.settings, group.name)
    terms = PlanFile(group.folder / "plan.json").load().plan.terms

    found = watch_hand_over(
        group.cluster, terms, replace(drained, partitions=gone), 0.0, THIS_PROCESS
    )

    assert [each.state for each in found.partitions.values()] == ["overlap"] * 2
    assert not found.is_good


def test_consumers_had_time_since_the_drain_ended_before_the_watch_began(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = group.drain(lambda group: None, "0s")
    produce_and_consume(group)
    numbers = tuple(drained.partitions)
    while COUNT in group.cluster.committed(group.name, group.topic.name, numbers).values():
        group.over.wait(0.1)
    monkeypatch.setattr(hand_over, "FASTEST", 1)
    terms = PlanFile(group.folder / "plan.json").load().plan.terms
    ended = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    found = watch_hand_over(
        group.cluster, terms, replace(drained, ended_before=ended), 20.0, THIS_PROCESS
    )

    assert [each.state for each in found.partitions.values()] == ["continued"] * 2


def test_offsets_that_another_tool_skips_are_in_doubt(group: Group) -> None:
    def begin(group: Group) -> None:
        group.produce()
        group.cluster.alter_committed(group.name, group.topic.name, {0: COUNT + 3, 1: COUNT + MORE})

    summary = group.drain(begin, "30s")
    assert states(summary) == ["doubtful"] * 2
    assert summary.exit_code == EXIT_FOUND


def test_records_that_are_deleted_before_anyone_reads_them_are_a_gap(group: Group) -> None:
    def begin(group: Group) -> None:
        group.produce()
        for partition in range(2):
            group.topic.delete_before(COUNT + 2, partition)

    summary = group.drain(begin, "30s")
    assert states(summary) == ["gap"] * 2
    assert f"0: gap, {COUNT} to {COUNT + 1} were deleted" in str(summary)


def test_nothing_is_handed_over_by_a_drain_that_commits_nothing(group: Group) -> None:
    with pytest.raises(UsageError, match="nothing to hand over"):
        drainer.drain(
            topic=group.topic.name,
            group=group.name,
            handler="count",
            client={"bootstrap.servers": group.topic.bootstrap},
            from_="earliest",
            plan=group.folder / "plan.json",
            commit=False,
            settings=LocalSettings(hand_over_s="1s"),
        )
