"""Reports of many tasks are one reading: rates, lags and shares over any stretch of time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.limits.search.reading import Report, TrafficReading, changing_share
from drainer.limits.search.trial import Point

QUIET = Report(
    at_s=0.0,
    order=1,
    ready=True,
    acknowledged=0,
    errors=0,
    consumed=(0, 0),
    busy_s=0.0,
)


def report(
    reading: TrafficReading, task: int, at_s: float, rate: float, reads: float, **other: float
) -> None:
    """A task that sends and whose groups read at a steady rate from the beginning on; its clock is
    another than the driver's."""
    count, read = round(rate * at_s), round(reads * at_s)
    report = replace(QUIET, at_s=at_s + 1000 * task, acknowledged=count, consumed=(count, read))
    reading.take(at_s, task, replace(report, **other))  # type: ignore[arg-type]


def test_rates_of_tasks_are_added_up_and_the_slowest_group_counts() -> None:
    reading = TrafficReading(2, 2)
    for quarter in range(41):
        report(reading, 0, quarter / 4, 100, 90)
        report(reading, 1, quarter / 4 + 0.1, 300, 250)

    seen = reading.signals(2.0, 9.0)

    assert seen is not None
    assert seen.sent_per_s == pytest.approx(400, rel=0.01)
    assert seen.falling_behind == pytest.approx(60 / 400, rel=0.05)
    assert 6.5 <= seen.window_s <= 7.0


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
            looks=1,
        )
        reading.take(at_s, 0, report)
    return reading


def test_what_runs_is_told_when_there_is_enough_of_it() -> None:
    reading = in_bursts(10.0)

    assert reading.running(SENT, 9.5, 10.0) is None
    just_begun = reading.running(SENT, 9.0, 10.0)
    slow = replace(SENT, pace=2.0)
    assert reading.running(slow, 6.0, 10.0) is None
    of_slow = reading.running(slow, 5.0, 10.0)

    assert just_begun is not None
    assert just_begun.window_s == 1.0
    assert of_slow is not None
    assert of_slow.window_s == 5.0


def test_consumers_that_fetch_in_bursts_are_looked_at_for_longer_or_not_at_all() -> None:
    reading = in_bursts(9.75)

    in_a_burst = reading.signals(9.0, 9.75)
    running = reading.running(SENT, 5.0, 9.75)
    begun_lately = reading.running(SENT, 6.0, 9.75)

    assert in_a_burst is not None
    assert (in_a_burst.falling_behind or 0) > 0.9
    assert running is not None
    assert running.falling_behind is not None
    assert running.falling_behind < 0.2
    assert begun_lately is not None
    assert begun_lately.falling_behind is None
    assert begun_lately.sent_per_s == running.sent_per_s == pytest.approx(100)


@pytest.mark.parametrize("late_at", [9.25, 9.5, 9.75, 10.0])
def test_one_look_that_is_late_is_not_all_that_runs(late_at: float) -> None:
    seen = in_bursts(10.0, late_at).running(SENT, 0.0, 10.0)

    assert seen is not None
    assert seen.round_trip_ms == 2.0


def test_a_task_that_tells_seldom_hides_nothing_of_what_runs() -> None:
    reading = TrafficReading(2, 2)
    for quarter in range(41):
        report(reading, 0, quarter / 4, 100, 100)
        if quarter % 4 == 0:
            report(reading, 1, quarter / 4, 300, 300)

    seen = reading.running(SENT, 0.0, 10.9)

    assert seen is not None
    assert seen.sent_per_s == pytest.approx(400, rel=0.01)


def test_what_a_group_skipped_is_no_lag_of_it() -> None:
    reading = TrafficReading(1, 2)
    report(reading, 0, 10, 100, 20)
    assert reading.lags == (0, 800)

    reading.set_caught_up()

    assert reading.lags == (0, 0)


def test_the_lag_of_a_stretch_is_told_from_its_least_to_its_most() -> None:
    reading = TrafficReading(1, 2)
    for second in range(5):
        report(reading, 0, second, 100, 90)

    assert reading.lag_between(1, 3) == (0, 30)
    assert reading.lag_between(9, 10) is None


def test_without_a_word_from_each_task_there_are_no_signals() -> None:
    reading = TrafficReading(2, 2)
    report(reading, 0, 1, 100, 100)
    report(reading, 0, 2, 100, 100)
    report(reading, 1, 2, 100, 100)

    assert reading.signals(0, 3) is None
    assert not reading.ready(2)
    assert reading.ready(1)


def test_samples_of_the_time_before_the_window_are_left_out() -> None:
    reading = TrafficReading(1, 2)
    for second, trips in enumerate([(900.0,), (1.0, 3.0), (2.0,)]):
        report(reading, 0, second, 1, 1, round_trips_ms=trips, looks=len(trips), throttled=1)  # type: ignore[arg-type]

    seen = reading.signals(0, 3)

    assert seen is not None
    assert seen.round_trip_ms == 2.0
    assert seen.throttled == pytest.approx(2 / 3)


def test_the_busiest_process_counts_and_errors_are_added_up() -> None:
    reading = TrafficReading(2, 2)
    for second in (1.0, 3.0):
        report(reading, 0, second, 1, 1, busy_s=0.2 * second, errors=second)
        report(reading, 1, second, 1, 1, busy_s=0.9 * second, errors=2 * second)

    seen = reading.signals(0, 3)

    assert seen is not None
    assert seen.clients_busy == pytest.approx(0.9)
    assert seen.errors == 6


def test_a_report_of_other_groups_is_not_taken() -> None:
    with pytest.raises(ValueError, match="2 groups"):
        TrafficReading(1, 3).take(0, 0, QUIET)


def test_a_change_lasts_until_the_next_look_and_a_replica_that_stays_out_is_one_all_the_time() -> (
    None
):
    assert changing_share([(0, "ab"), (1, "ab"), (2, "a"), (4, "ab"), (10, "ab")], "ab") == 0.3
    assert changing_share([(0, "a"), (5, "a")], "ab") == 1.0
    assert changing_share([(0, 7), (5, 7), (10, 9)]) == 0.5
    assert changing_share([(0, "ab")], "ab") is None
