"""An inspection on the terminal: what is urgent first, the worst partitions, and honest figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.insight.inspection import Inspection, PartitionInspection, ReadExtent, SplitFailures
from drainer.insight.statistics.contents import Bin, ContentsMeter
from drainer.insight.statistics.retention_forecast import Doom, Retention
from drainer.insight.statistics.skew import SkewMeter
from drainer.insight.view.inspect import show_inspection, warnings
from drainer.kafka.group import GroupInfo, Member
from drainer.kafka.topic import Replicas
from drainer.message import Message, Origin, SubMessage

from . import samples

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
        log_end=100 + messages,
        messages=messages,
        bytes=messages * 100,
        head_offset=100,
        age_s=3600.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def inspection(*partitions: PartitionInspection, full: bool = False) -> Inspection:
    contents, skew = ContentsMeter(), SkewMeter()
    for window in range(WINDOWS):
        for n in range(20):
            message = Message(ORIGIN, n, b"customer-4711", b"x" * (n * 40), 3_600_000 * window)
            contents.take([message])
            hot = "app\x1b[2Jadmin" if n < 8 - window % 2 else f"{window}-{n}"
            skew.take(message, [SubMessage(hot, {"kind": "set_email"})])
        contents.end_cluster()
        skew.end_cluster()
    part = 1.0 if full else 0.2
    return Inspection(
        topic="orders",
        topic_id="id",
        cluster_id="c",
        group=GroupInfo("indexer", "empty", "classic", ()),
        isolation="read_committed",
        handler="shop:Reindex",
        taken_ms=36_000_000,
        partitions=partitions or (partition(0),),
        ages=[Bin(0, 1800, 0.25), Bin(1800, 3600, 0.75)],
        retention=Retention("delete", 7 * 24 * 3_600_000, None),
        min_in_sync=2,
        reading=ReadExtent(full, 200, WINDOWS, 0, 0.5, 20_000, 0.1),
        contents=contents.contents(part, 36_000_000),
        skew=skew.skew(part),
        failures=None,
    )


def lines_of(found: Inspection, *, quiet: bool = False, width: int = 100) -> list[str]:
    terminal, out, err = samples.terminal(quiet=quiet, width=width)
    show_inspection(terminal, found)
    assert out.getvalue() == ""
    assert "\x1b" not in err.getvalue()
    return err.getvalue().splitlines()


def test_the_hot_row_is_named_in_the_first_lines() -> None:
    lines = lines_of(inspection())

    assert lines[0] == "orders, for group indexer: ~1,000 messages behind, the oldest 1h 00m old"
    assert lines[1].startswith("one sub-key holds 38% (±")
    assert "of the work: ~375 updates to 'app\\x1b[2Jadmin'; so no concurrency" in lines[1]


def test_what_is_estimated_says_so_and_what_is_not_does_not() -> None:
    sampled, whole = "\n".join(lines_of(inspection())), "\n".join(lines_of(inspection(full=True)))

    assert "~1,000 messages" in sampled
    assert "20% of the backlog" in sampled
    assert "±" in sampled
    assert "~" not in whole.replace("~/", "")
    assert "±" not in whole


def test_trouble_is_told_in_the_order_of_its_urgency_also_when_quiet() -> None:
    gone = Doom(600.0, "retention.ms")
    found = inspection(
        partition(0, doom=gone, lost=50),
        partition(1, leader="", replicas=Replicas((1, 2, 3), ())),
        partition(2, replicas=Replicas((1, 2, 3), (1,))),
        partition(3, replicas=Replicas((1, 2, 3), (1, 2))),
    )
    found = replace(
        found,
        failures=SplitFailures(3, "split failed at orders/0/4: no", "mend it"),
        remarks=("retention has deleted up to 50 records: orders/0",),
    )

    lines = lines_of(found, quiet=True)

    assert lines == [
        "warning: retention may delete the head of the backlog in 10m 00s: retention.ms, offset 100"
        " of partition 0",
        "warning: retention has deleted up to 50 records: orders/0",
        "warning: partition 1: no leader, and so not counted here",
        "warning: partition 2: fewer replicas in sync than min.insync.replicas (2): no write with"
        " acks=all is taken",
        "warning: partition 3: under-replicated",
        "warning: split did not take 3 messages: split failed at orders/0/4: no",
        "hint: mend it",
    ]


def test_retention_is_told_when_it_is_sooner_than_a_drain_whose_length_is_known() -> None:
    in_two_days = inspection(partition(0, doom=Doom(2 * 24 * 3600.0, "retention.ms")))
    in_an_hour = inspection(partition(0, doom=Doom(3600.0, "retention.ms")))

    assert warnings(in_two_days, 3 * 24 * 3600.0)[0] == (
        "retention may delete the head of the backlog in 2 days, and draining it takes about"
        " 3 days: retention.ms, offset 100 of partition 0"
    )
    assert warnings(in_an_hour, 600.0) == []


def test_a_head_that_is_safe_for_days_is_no_warning() -> None:
    found = inspection(partition(0, doom=Doom(5 * 24 * 3600.0, "retention.ms")))

    assert warnings(found) == []
    assert any("goes in 5 days at the earliest" in line for line in lines_of(found))


def test_of_many_partitions_the_worst_are_shown_and_the_rest_is_told_in_a_line() -> None:
    found = inspection(*[partition(n, 10 * n) for n in range(40)], partition(40, leader=""))

    lines = lines_of(found, width=60)
    rows = [line.split()[0] for line in lines if "[100, " in line or "no leader  " in line]

    assert rows == ["40", *[str(n) for n in range(39, 28, -1)]]
    assert "and 29 more partitions, with ~4,060 messages" in lines


def test_members_of_an_active_group_are_named() -> None:
    member = Member("id-1", "indexer-7", "10.0.0.1", None, ())
    found = replace(inspection(), group=GroupInfo("indexer", "stable", "classic", (member,)))

    assert any("indexer-7 on 10.0.0.1; a drain needs it empty" in line for line in lines_of(found))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_sizes_ages_and_the_hottest_are_drawn_as_bars(width: int) -> None:
    lines = lines_of(inspection(), width=width)

    drawn = [line for line in lines if "█" in line]
    assert any(line.startswith("  512 B to 1 KiB  ") for line in drawn)
    assert any(line.startswith("  customer-4711  ") and "100%" in line for line in drawn)
    assert any(line.startswith("  set_email  ") for line in drawn)
    assert any(line.startswith("  'app\\x1b[2Jadmin'  ") for line in drawn)
    assert any(line.startswith("  30m and more  ") and "75%" in line for line in drawn)
    if width >= 80:
        assert max(map(len, drawn)) <= min(width, 100)


def test_bins_of_half_a_day_are_told_apart() -> None:
    half_s = 12 * 3600
    bins = [Bin(number * half_s, (number + 1) * half_s, 0.1) for number in range(10)]
    lines = lines_of(replace(inspection(), ages=bins))

    drawn = lines[lines.index("message age  (of all offsets)") + 1 :][:10]
    assert [line.split("  ")[1].strip() for line in drawn][3:6] == [
        "36h to 2 days",
        "2 days to 2.5 days",
        "2.5 days to 3 days",
    ]


def test_what_came_once_in_a_sample_is_not_called_hot() -> None:
    lines = lines_of(inspection())
    bars = lines[lines.index("hottest sub-keys  (of all sub-messages)") + 1 :]

    assert bars[0].startswith("  'app")
    assert bars[1] == ""


def test_no_backlog_is_told_in_a_line() -> None:
    empty = replace(inspection(partition(0, 0), full=True), skew=None)

    assert lines_of(empty)[0] == "orders, for group indexer: no backlog"


def test_the_same_is_there_for_programs() -> None:
    found = inspection(partition(0, doom=Doom(600.0, "retention.ms")), full=True).as_json()

    assert found["retention_s"] == 600.0
    assert found["messages"] == 1000
    assert found["hot"]["share"] == 0.375
    assert found["hot"]["low"] == found["hot"]["high"]
    assert found["partitions"]["0"]["start"] == 100
    assert found["skew"]["fan_out"]["max"] == 1
