"""Reports of many tasks are one reading: rates, lags and shares over any stretch of time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.limits.search.reading import (
    IdleDetector,
    TrafficReading,
    TrafficReport,
    changing_share,
)
from drainer.limits.search.trial import Point

QUIET = TrafficReport(
    at_s=0.0, order=1, ready=True, acknowledged=0, errors=0, consumed=(0, 0), busy_s=0.0
)


def report(
    reading: TrafficReading, task: int, at_s: float, rate: float, reads: float, **other: float
) -> None:
    """A task that sends and whose groups read at a steady rate from the beginning on; its clock is
    another than the driver's."""
    count, read = round(rate * at_s), round(reads * at_s)
    report = replace(QUIET, at_s=at_s + 1000 * task, acknowledged=count, consumed=(count, read))
    reading.take(at_s, task, replace(report, **other))  # type: ignore[arg-type]


def test_a_window_adds_up_tasks_and_takes_the_slowest_group_and_the_busiest_process() -> None:
    reading = TrafficReading(2, 2)
    for quarter in range(41):
        at_s = quarter / 4
        # What came before the window is left out: of the first report in it that are its samples.
        trips = (900.0,) if at_s <= 2 else (1.0, 3.0, 2.0)
        more = {"busy_s": 0.2 * at_s, "errors": quarter, "round_trips_ms": trips}
        report(reading, 0, at_s, 100, 90, **more, samples=1, throttled=quarter % 2)  # type: ignore[arg-type]
        report(reading, 1, at_s + 0.1, 300, 250, busy_s=0.9 * at_s, errors=2 * quarter)

    seen = reading.signals(2.0, 9.0)

    assert seen is not None
    assert seen.sent_per_s == pytest.approx(400, rel=0.01)
    assert seen.falling_behind == pytest.approx(60 / 400, rel=0.05)
    assert seen.read_per_s == pytest.approx(400 + 340, rel=0.01)
    assert 6.5 <= seen.window_s <= 7.0
    assert seen.clients_busy == pytest.approx(0.9)
    assert seen.errors == 28 + 2 * 27
    assert (seen.round_trip_ms, seen.throttled) == (2.0, 0.5)
    assert reading.lag_between(1, 3) == (0, 30 + 143)
    assert reading.lag_between(19, 20) is None
    reading.set_caught_up()
    assert reading.lags == (0, 0), "what a group skipped is no lag of it"


def test_without_a_report_of_each_task_there_are_no_signals_and_none_of_other_groups() -> None:
    reading = TrafficReading(2, 2)
    for task, at_s in ((0, 1), (0, 2), (1, 2)):
        report(reading, task, at_s, 100, 100)

    assert reading.signals(0, 3) is None
    assert (reading.ready(1), reading.ready(2)) == (True, False)
    with pytest.raises(ValueError, match="2 groups"):
        TrafficReading(1, 3).take(0, 0, QUIET)


SENT = Point(100, 1, 100.0)


def in_bursts(until_s: float, late_at: float | None = None) -> TrafficReading:
    """A task that sends 100 messages/s, which a group reads once a second; one look may be late."""
    reading = TrafficReading(1, 1)
    for quarter in range(int(until_s * 4) + 1):
        at_s = quarter / 4
        report = replace(
            QUIET,
            at_s=at_s,
            acknowledged=25 * quarter,
            consumed=(100 * (quarter // 4),),
            round_trips_ms=(500.0 if at_s == late_at else 2.0,),
            samples=1,
        )
        reading.take(at_s, 0, report)
    return reading


@pytest.mark.parametrize(
    ("pace", "begun_s", "window_s", "falls_behind"),
    [
        (100.0, 9.5, None, None),  # too short
        (100.0, 6.5, 1.0, None),  # consumers fetch in bursts: they are looked at for longer
        (100.0, 5.0, 1.0, 0.2),
        (2.0, 6.0, None, None),  # until ten messages were sent
        (2.0, 5.0, 5.0, 0.2),
    ],
)
def test_what_runs_is_reported_when_there_is_enough_of_it(
    pace: float, begun_s: float, window_s: float | None, falls_behind: float | None
) -> None:
    for late_at in (9.25, 9.5, 9.75, 10.0):
        seen = in_bursts(10.0, late_at).running(replace(SENT, pace=pace), begun_s, 10.0)

        if seen is None or window_s is None:
            assert (seen, window_s) == (None, None)
            continue
        assert seen.window_s == window_s
        assert seen.sent_per_s == pytest.approx(100)
        assert seen.round_trip_ms == 2.0, "one look that is late is not all that runs"
        if seen.falling_behind is None or falls_behind is None:
            assert seen.falling_behind == falls_behind
        else:
            assert seen.falling_behind < falls_behind


def test_a_task_that_reports_seldom_hides_nothing_of_what_runs() -> None:
    reading = TrafficReading(2, 2)
    for quarter in range(41):
        report(reading, 0, quarter / 4, 100, 100)
        if quarter % 4 == 0:
            report(reading, 1, quarter / 4, 300, 300)

    seen = reading.running(SENT, 0.0, 10.9)

    assert seen is not None
    assert seen.sent_per_s == pytest.approx(400, rel=0.01)


def test_brokers_are_calm_when_they_take_what_they_are_sent_about_as_fast_as_ever() -> None:
    detector = IdleDetector(20.0)

    def idle(round_trip_ms: float | None, sent_per_s: float = 20.0) -> bool:
        reading = in_bursts(4.0).signals(0, 4)
        assert reading is not None
        return detector.update(replace(reading, round_trip_ms=round_trip_ms, sent_per_s=sent_per_s))

    assert idle(100.0)
    assert not idle(8.0, sent_per_s=4.0)  # it refuses most of it, and that sets no standard
    assert idle(190.0, sent_per_s=15.0)
    assert not idle(250.0)
    assert not idle(None)
    assert idle(10.0)
    assert not idle(100.0)


def test_a_change_lasts_until_the_next_look_and_a_replica_that_stays_out_is_one_all_the_time() -> (
    None
):
    assert changing_share([(0, "ab"), (1, "ab"), (2, "a"), (4, "ab"), (10, "ab")], "ab") == 0.3
    assert changing_share([(0, "a"), (5, "a")], "ab") == 1.0
    assert changing_share([(0, "ab")], "ab") is None
