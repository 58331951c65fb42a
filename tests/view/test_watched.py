"""A status that went through a drain's socket is shown as it is where the drain runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from builders import a_cap, a_status
from drainer.control.wire import About, DrainReport
from drainer.model.account import Event, EventKind
from drainer.model.deadline import DeadlineStatus
from drainer.model.latency import Latency
from drainer.model.status import FailureStatus, HeldBack, Load, OutageStatus, Paused, Status
from drainer.model.unhandled import RuleStatus
from drainer.spark.assign.status import SparkStatus
from drainer.text.mask import short_key
from drainer.view.live import frame, status_line

from . import samples

EVENT = Event(
    "2026-03-14T19:04:40.000+01:00", EventKind.CHANGED, "ana@db1", "slow", ("rate 1 → 2",)
)
ABOUT = About("p.json", "orders", "indexer", "d-1", "process", EVENT.at)
LATENCY = Latency.of(100, 0.02, [n / 1_000 for n in range(101)])
NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
FAILURES = FailureStatus(
    *(9, 8, 7, 6, 5, 4, 3),
    errors=(("OSError: [b1] is away", 30), ("V", 2)),
    dead_letter_topic="dead",
    error_types=(("OSError", 30),),
    in_outage=True,
    outage=OutageStatus(NOON, 70.0, NOON, 8.0),
    given_up=2,
    rate=50.0,
)


@pytest.mark.parametrize(
    "status",
    [
        a_status(),
        a_status(
            3, hottest=tuple((short_key(key), 9) for key in (b"\xff\x00", (1, "a"), "\ud800", 7))
        ),
        a_status(2, engine_status=samples.on_spark(40), in_flight=100),
        a_status(2, engine_status=SparkStatus(1), busy=900, processor=Load(0.9, 0.05)),
        a_status(
            auto=samples.AUTO,
            failures=FAILURES,
            rules=RuleStatus({"a": 1}, {"old": 3}, {}, {"n > 5": 136}, {"n > 5": "no field"}),
            deadline=DeadlineStatus(datetime(2026, 3, 14, 8, tzinfo=UTC), 7200.0, -1800.0),
            latency=LATENCY,
            latency_recent=LATENCY,
            read_cap=a_cap(),
            write_cap=a_cap(bytes_per_s=1e6, binds=False),
            trouble=samples.EVIL,
            silent_s=7.5,
            p50_at_start_s=0.002,
            quicker=1.5,
            longest=99,
            blocked_by="handler.py:7",
            paused=Paused(EVENT, EVENT.at),
            changes=(EVENT, EVENT),
            changes_total=9,
            lane_s=3.0,
            held_back=(HeldBack(0, 470, "'d-root'", 423, 20.0), HeldBack(1, 7, None, 0, 6.0)),
            eta_s=None,
        ),
        a_status(
            held_back=(HeldBack(0, 470, "'d-root'", 0, 20.0, is_ready=True),),
            eta_s=None,
        ),
    ],
    ids=["plain", "odd keys", "Spark", "full Spark", "everything", "in turn"],
)
def test_a_status_of_another_process_looks_the_same(status: Status) -> None:
    seen = DrainReport.decoded(DrainReport(ABOUT, status).encoded()).status
    assert seen is not None
    assert frame(seen, 110, 60) == frame(status, 110, 60)
    assert status_line(seen) == status_line(status)


def test_what_is_masked_leaves_the_drain_masked_and_a_watcher_masks_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encoded() -> bytes:
        key = short_key("doc-17")
        held = (HeldBack(0, 470, key, 423, 20.0), HeldBack(1, 7, None, 0, 6.0))
        return DrainReport(ABOUT, a_status(hottest=((key, 1),), held_back=held)).encoded()

    plain = encoded()
    monkeypatch.setenv("DRAINER_MASK_KEYS", "a secret of this test")
    assert b"doc-17" in plain
    assert b"doc-17" not in encoded()
    for each in (plain, encoded()):
        status = DrainReport.decoded(each).status
        assert status is not None
        assert status.limits.hottest == ((short_key("doc-17"), 1),)
        assert [each.key for each in status.limits.held_back] == [short_key("doc-17"), None]
