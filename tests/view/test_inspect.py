"""Inspections to show, and one as JSON."""

from __future__ import annotations

from dataclasses import replace

from drainer.handler import Handler
from drainer.insight.inspection import Bin, Inspection, PartitionInspection, ReadExtent
from drainer.insight.retention import Expiry, Retention
from drainer.insight.survey import SplitFailures, Survey
from drainer.kafka.cluster import Replicas
from drainer.kafka.group import GroupInfo, Member
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage

ORIGIN = Origin("orders", "id", 0)
WINDOWS = 10


def partition(number: int, messages: int = 1000, **more: object) -> PartitionInspection:
    made = PartitionInspection(
        partition=number,
        leader="b:9092",
        replicas=Replicas((1, 2, 3), (1, 2, 3)),
        start=100,
        end=100 + messages,
        committed=100,
        log_start=0,
        log_end=100 + messages,
        leader_epoch=None,
        messages=messages,
        bytes=messages * 100,
        age_s=3600.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def message(offset: int, window: int, sub_key: str) -> Message:
    value = sub_key.ljust(offset * 40).encode()
    return Message(ORIGIN, offset, b"customer-4711", value, 3_600_000 * window)


class Emails(Handler):
    def split(self, message: Message) -> list[SubMessage]:
        sub_key = (message.value or b"").decode().strip()
        return [SubMessage(sub_key, {"kind": "set_email"})]

    def handle(self, sub: SubMessage) -> None:
        raise AssertionError


def inspection(*partitions: PartitionInspection, full: bool = False) -> Inspection:
    survey = Survey(LoadedHandler("emails", Emails))
    for window in range(WINDOWS):
        hot = 8 - window % 2
        survey.take(
            0,
            [
                message(n, window, "app\x1b[2Jadmin" if n < hot else f"{window}-{n}")
                for n in range(20)
            ],
            20,
        )
    return Inspection(
        topic="orders",
        topic_id="id",
        cluster_id="c",
        group=GroupInfo("indexer", "empty", ()),
        isolation="read_committed",
        handler="shop:Reindex",
        taken_ms=36_000_000,
        partitions=partitions or (partition(0),),
        ages=[Bin(0, 1800, 0.25), Bin(1800, 3600, 0.75)],
        retention=Retention("delete", 7 * 24 * 3_600_000, None),
        reading=ReadExtent(full, 200, 0.5),
        contents=survey.contents,
        skew=survey.skew,
        failures=None,
    )


def in_trouble() -> Inspection:
    """An inspection of an active group with all that can be wrong; no sub-key is hot."""
    found = inspection(
        partition(0, expiry=Expiry(0, 100, 600.0, "retention.ms")),
        partition(1, leader="", replicas=Replicas((1, 2, 3), ())),
        partition(3, replicas=Replicas((1, 2, 3), (1, 2))),
        *(partition(n, 10 * n) for n in range(4, 40)),
    )
    assert found.skew is not None
    return replace(
        found,
        group=GroupInfo("indexer", "stable", (Member("id-1", "indexer-7", "10.0.0.1", "pod-7"),)),
        ages=[Bin(n * 43_200, (n + 1) * 43_200, 0.1) for n in range(10)],
        skew=replace(found.skew, hottest=(replace(found.skew.hottest[0], share=0.0004),)),
        failures=SplitFailures(3, "split failed at orders/0/4: no", "fix it"),
        remarks=("retention has deleted up to 50 records: orders/0",),
    )


def empty() -> Inspection:
    found = inspection(partition(0, 0, bytes=0, age_s=None), full=True)
    contents = replace(found.contents, messages=0, hottest_keys=())
    return replace(found, ages=(), contents=contents, skew=None)


def test_the_same_is_there_for_programs() -> None:
    soon = Expiry(0, 100, 600.0, "retention.ms")
    found = inspection(partition(0, expiry=soon), full=True).as_json()

    assert found["retention_s"] == found["expiry"]["in_s"] == 600.0
    assert found["messages"] == 1000
    assert found["hot"]["share"] == 0.375
    assert found["hot"]["count"] == 75
    assert found["partitions"]["0"]["start"] == 100
    assert found["skew"]["fan_out"]["max"] == 1
    assert found["undecided"] == {}
