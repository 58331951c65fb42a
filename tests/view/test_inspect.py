"""An inspection as a page: what is urgent first, the worst partitions, and honest figures."""

from __future__ import annotations

from dataclasses import replace

from drainer.handler import Handler
from drainer.insight.inspection import Bin, Inspection, PartitionInspection, ReadExtent
from drainer.insight.retention import Expiry, Retention
from drainer.insight.sketch import ItemShare
from drainer.insight.survey import SplitFailures, Survey
from drainer.insight.view.inspect import inspection_page
from drainer.kafka.cluster import Replicas
from drainer.kafka.group import GroupInfo, Member
from drainer.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage
from drainer.view.page import Page

from .facts import fields, named, row

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
        survey.end_window()
    part = 1.0 if full else 0.2
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
        contents=survey.contents(part),
        skew=survey.skew(part),
        failures=None,
    )


def page_of(*partitions: PartitionInspection, **changes: object) -> Page:
    return inspection_page(replace(inspection(*partitions), **changes))  # type: ignore[arg-type]


def test_the_hot_row_is_right_below_the_headline() -> None:
    page = page_of()

    assert page.message.startswith(
        "orders, for group indexer: ~1,000 messages behind, the oldest 1h 00m old; one sub-key"
        " has 38% (±"
    )
    assert "of the work: ~375 updates to 'app\\x1b[2Jadmin'. No concurrency" in page.message


def test_a_backlog_that_splits_well_is_called_that() -> None:
    known = inspection().skew
    assert known is not None
    for share, shown in ((0.002, "0.2%"), (0.0004, "0.1%")):
        even = replace(known.hottest[0], share=share)
        page = page_of(skew=replace(known, hottest=(even,)))
        assert f"the work splits well: no sub-key has more than {shown} of it" in page.message


def test_estimates_are_marked_and_exact_figures_are_not() -> None:
    sampled, whole = page_of(), inspection_page(inspection(full=True))

    assert fields(sampled)["backlog"].startswith("~1,000 messages")
    assert "20% of the backlog" in fields(sampled)["read"]
    assert "±" in row(named(sampled)["hottest sub-keys"], 0)[2]
    assert row(named(whole)["hottest sub-keys"], 0)[2] == "38%  75"
    everything = " ".join([whole.message, *fields(whole).values()])
    assert "~" not in everything
    assert "±" not in everything


def test_a_rare_kind_is_shown_and_the_other_is_not_all() -> None:
    found = inspection(full=True)
    assert found.skew is not None
    kinds = (
        ItemShare("sale", 79_973, 0.9997, 0.9997, 0.9997),
        ItemShare("storno", 27, 3e-4, 3e-4, 3e-4),
    )
    page = inspection_page(replace(found, skew=replace(found.skew, kinds=kinds)))
    table = named(page)["kinds of sub-messages"]
    assert row(table, 0)[2] == ">99.9%  79,973"
    assert row(table, 1)[2] == "<0.1%  27"


def test_a_count_of_many_sub_keys_is_an_estimate() -> None:
    found = inspection(full=True)
    assert found.skew is not None
    contents = replace(found.contents, message_keys=20_001)
    many = replace(found, skew=replace(found.skew, sub_keys=20_001), contents=contents)
    assert fields(inspection_page(many))["sub-keys"] == "~20,001 (in the backlog)"
    keys = named(inspection_page(many))["hottest message keys"]
    assert keys.headings[2][0] == "~20,001 keys in the messages read"


def test_trouble_is_shown_in_the_order_of_its_urgency() -> None:
    gone = Expiry(0, 100, 600.0, "retention.ms")
    page = page_of(
        partition(0, expiry=gone),
        partition(1, leader="", replicas=Replicas((1, 2, 3), ())),
        partition(3, replicas=Replicas((1, 2, 3), (1, 2))),
        failures=SplitFailures(3, "split failed at orders/0/4: no", "fix it"),
        remarks=("retention has deleted up to 50 records: orders/0",),
    )

    subjects = ("head of the backlog in 10m", "deleted up to 50", "1: no leader", "3: under")
    assert len(page.warnings) == len(subjects) + 1
    for warning, subject in zip(page.warnings, subjects, strict=False):
        assert subject in warning
    assert page.warnings[-1] == "split failed on 3 messages: split failed at orders/0/4: no"
    assert page.hints == ("fix it",)


def test_of_many_partitions_the_worst_come_first() -> None:
    page = page_of(*[partition(n, 10 * n) for n in range(40)], partition(40, leader=""))

    found = named(page)["partition"]
    assert row(found, 0)[:2] == ["40", "no leader"]
    assert [row(found, n)[0] for n in (1, 2, -1)] == ["39", "38", "0"]


def test_members_of_an_active_group_are_named() -> None:
    member = Member("id-1", "indexer-7", "10.0.0.1")
    page = page_of(group=GroupInfo("indexer", "stable", (member,)))

    assert "indexer-7 on 10.0.0.1; a drain needs it empty" in fields(page)["group"]


def test_ages_are_shown_from_the_oldest_to_the_youngest() -> None:
    half_s = 12 * 3600
    page = page_of(ages=[Bin(n * half_s, (n + 1) * half_s, 0.1) for n in range(10)])

    labels = [label for label, *_ in named(page)["age"].rows]
    assert labels[-3:] == ["36h 00m to 24h 00m", "24h 00m to 12h 00m", "12h 00m to 0s"]


def test_the_skew_is_shown_only_with_a_handler() -> None:
    assert "fan-out" in fields(page_of())
    without = page_of(skew=None, handler=None)
    assert "fan-out" not in fields(without)
    assert "hottest message keys" in named(without)


def test_no_backlog_is_shown_in_a_line() -> None:
    found = inspection(partition(0, 0, bytes=0, age_s=None), full=True)
    contents = replace(found.contents, messages=0, hottest_keys=())
    page = inspection_page(replace(found, ages=(), contents=contents, skew=None))

    assert page.message == "orders, for group indexer: no backlog"
    assert list(named(page)) == ["partition"]


def test_the_same_is_there_for_programs() -> None:
    soon = Expiry(0, 100, 600.0, "retention.ms")
    found = inspection(partition(0, expiry=soon), full=True).as_json()

    assert found["retention_s"] == found["expiry"]["in_s"] == 600.0
    assert found["messages"] == 1000
    assert found["hot"]["share"] == 0.375
    assert found["hot"]["low"] == found["hot"]["high"]
    assert found["partitions"]["0"]["start"] == 100
    assert found["skew"]["fan_out"]["max"] == 1
    assert found["undecided"] == {}
