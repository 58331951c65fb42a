"""How long a drain takes, when that is on the clock, and the margin to its deadline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from builders import a_status, changed, counts
from drainer.model.account import Event, EventKind
from drainer.model.deadline import DeadlineStatus
from drainer.model.status import Paused
from drainer.view.page import Tone
from drainer.view.status import time_left, verdict
from drainer.view.verdict import deadline_field, ending

NOW = datetime(2026, 11, 29, 17, 5, 20, tzinfo=UTC)  # a Sunday
DAY_S = 86_400.0


def by(left_s: float) -> DeadlineStatus:
    return DeadlineStatus(NOW + timedelta(seconds=left_s), left_s, None)


@pytest.mark.parametrize(
    ("left_s", "deadline", "words"),
    [
        (41, None, "takes, done at 17:06"),
        (41, by(53_680), "takes, done at 17:06, 14h 54m before Mon 08:00"),
        (31, by(18), "takes, done at 17:05, 13s after 17:05"),
        (1_000, by(900), "takes, done at 17:22, 1m 40s after 17:20"),
        (33_000, None, "takes, done at Mon 02:15"),
        (33_000, by(53_680), "takes, done at Mon 02:15, 5h 45m before Mon 08:00"),
        (41, by(3 * DAY_S), "takes, done at 17:06, 3 days before Wed 17:05"),
        (10 * DAY_S, None, "takes, done at 09 Dec 17:05"),
        (60 * DAY_S, None, "takes, done at 28 Jan 2027 17:05"),
        (1e15, None, "takes"),
        (None, None, "takes"),
    ],
)
def test_the_end_is_on_the_clock_and_its_day_is_named_if_it_is_not_today(
    left_s: float | None, deadline: DeadlineStatus | None, words: str
) -> None:
    assert ending("takes", left_s, deadline, NOW) == words


def test_a_moment_is_the_same_before_and_after_it_and_wherever_it_is_shown() -> None:
    deadline = by(39)  # It is at 17:05:59.
    [field] = deadline_field(deadline)
    assert field.value == "17:05, in 39s"
    words = "done at 17:05, 8.0s before 17:05"
    assert ending("", 31.0, deadline, NOW) == words
    end = NOW + timedelta(seconds=31)
    assert ending("", 0.0, replace(deadline, left_s=8.0), end) == words


def test_a_pause_names_another_day_than_today() -> None:
    paused = Paused(Event("2026-11-29T17:05:20", EventKind.PAUSED, "ana"), "2026-11-30T08:00:00")
    before, after = datetime(2026, 11, 29, 18).astimezone(), datetime(2026, 11, 30, 7).astimezone()
    assert paused.in_words(before) == "paused by ana at 17:05:20 until Mon 08:00:00"
    assert paused.in_words(after) == "paused by ana at 29 Nov 17:05:20 until 08:00:00"


def test_a_drain_that_does_not_go_on_has_no_end_on_the_clock() -> None:
    paused = Paused(Event(NOW.isoformat(), EventKind.PAUSED, "ana@db1"))
    assert time_left(a_status(), NOW) == "25m 40s left, done at 17:31"
    for status in (a_status(paused=paused), a_status(stopping="Ctrl-C")):
        assert time_left(status, NOW) == "25m 40s left"


def test_what_was_given_up_is_in_the_headline_of_a_drain_that_is_done() -> None:
    [part] = a_status().progress.partitions
    done = changed(a_status(), partitions=(replace(part, watermark=part.end),))
    fine = verdict(changed(done, sub_messages=counts(done=9)), NOW)
    short = verdict(changed(done, sub_messages=counts(done=9, dead=277)), NOW)
    assert (fine.text, fine.tone) == ("Drained", Tone.GOOD)
    assert (short.text, short.tone) == ("Drained, with 277 dead letters", Tone.WARN)
