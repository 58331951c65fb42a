"""Sizes, durations, pairs and moments, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.cli.options import load_limits
from drainer.cli.steering import parse_settings
from drainer.engine.control import Pause
from drainer.errors import LimitsRefused, UsageError
from drainer.insight.distribution import Distribution
from drainer.model.deadline import parse_deadline
from drainer.model.option import (
    DURATION,
    RATE,
    SIZE,
    Concurrency,
    ValueType,
    parse_byte_rate,
    parse_concurrency,
    parse_duration,
    parse_pairs,
    parse_rate,
    parse_size,
    parse_text,
)

NOW = datetime(2026, 11, 20, 18, 0, 0, tzinfo=UTC)
MIB = 1024**2


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (parse_size, {"0": 0, "7B": 7, "1kib": 1024, " 256 MiB ": 256 * MIB, "1.5GiB": 1536 * MIB}),
        (
            parse_size,
            {"1kB": 1000, "2MB": 2_000_000, "0.5kb": 500, "256M": 256 * MIB, "1g": 1024 * MIB},
        ),
        (
            parse_duration,
            {
                "0": 0,
                "10 S": 10,
                "500us": 0.0005,
                "200ms": 0.2,
                "0.05s": 0.05,
                "2m": 120,
                "1.5h": 5400,
                "1h30m": 5400,
                "2d": 172_800,
            },
        ),
        (parse_rate, {"5000/s": 5000, "300/m": 5, "7/s": 7, "5k/s": 5000}),
        (parse_byte_rate, {"50MB/s": 50e6, "3MiB/m": 3 * 2**20 / 60, "9 b/s": 9, "1GiB/s": 2**30}),
    ],
)
def test_a_number_has_a_unit(parse: Callable[[str], Any], values: dict[str, float]) -> None:
    assert {text: parse(text) for text in values} == values


WRONG = [
    "",
    " ",
    "9" * 400,
    "-1",
    "+1",
    "1.",
    ".5",
    "1e3",
    "1_000",
    "one",
    "0x10",
    "inf",
    "nan",
    "1 2",
    "s",
]


@pytest.mark.parametrize(
    ("parse", "texts", "unit"),
    [
        (parse_size, [*WRONG, "1s", "1TiBs", "1Mi", "1kbit"], "mib"),
        (parse_duration, [*WRONG, "1w", "1MiB", "1min", "1 s s", "1h30", "1h-30m"], "ms"),
        (parse_rate, [*WRONG, "0", "5/day", "fast"], "/m"),
        (parse_byte_rate, [*WRONG, "0MB/s", "500/s", "5k/s", "50MB", "1MB/day"], "MB/s,"),
        (
            parse_concurrency,
            ["", "0", "-1", "many", "1.5", "auto:", "auto:0", "auto 5", "9" * 9],
            "or auto",
        ),
        (
            lambda text: parse_deadline(text, NOW),
            [
                *("", "soon", "25:00", "12:60", "8pm", "2026-11-21", "T", "8", "9" * 14 + "h"),
                *("9999-12-31T23:59-05:00", "0001-01-01T00:00+05:00"),
            ],
            "08:00",
        ),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    parse: Callable[[str], Any], texts: list[str], unit: str
) -> None:
    for text in texts:
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert repr(text) in str(caught.value)
        assert unit in (caught.value.hint or "")


UNITS = "Use a unit: 20us, 20ms, 20s, 20m, 20h, 20d."


@pytest.mark.parametrize(
    ("parse", "hint"),
    [
        (parse_duration, UNITS),
        (lambda text: Distribution.parse(f"p50=1ms,p99={text}"), UNITS),
        (parse_rate, "Write 20/s or 20/m."),
    ],
)
def test_a_number_that_could_be_of_two_units_is_refused(
    parse: Callable[[str], Any], hint: str
) -> None:
    with pytest.raises(UsageError, match="20") as caught:
        parse("20")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        *((parse_rate, text, "none for no limit") for text in ("0", "0/s", "-5/s", "off")),
        *((parse_rate, text, "`drainer pause PLAN`") for text in ("0", "0/s")),
        (parse_concurrency, "0", "`drainer pause PLAN`"),
        (parse_duration, "10min", "10m,"),
        *((parse_duration, text, "at most 36500d") for text in ("36501d", "99999999999d")),
        (load_limits, "50MB", "50MB/s"),
        (load_limits, "50", "50MB/s"),
        (load_limits, "50MBps", "50MB/s"),
        (lambda _: Pause(0.0), "0", "leave out --for"),
    ],
)
def test_the_hint_has_what_was_probably_meant(
    parse: Callable[[str], Any], text: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("concurency=20", "there is no option concurency", "Did you mean concurrency?"),
        ("max_failure=2%", "there is no option max_failure", "Did you mean max-failures?"),
        ("group=other", "group can't change while a drain runs", "Set one of "),
        (
            "broker-limits=none",
            "broker-limits can't change while a drain runs",
            "Use `drainer stop PLAN`, then `drainer resume PLAN --broker-limits …`.",
        ),
        (
            "buffer=1G",
            "buffer can't change while a drain runs",
            "Use `drainer stop PLAN`, then `drainer resume PLAN --tune buffer=…`.",
        ),
        ("xyz=1", "there is no option xyz", "Set one of "),
        ("50", "an option to set must be NAME=VALUE", "Write it as concurrency=50."),
        ("max_failures", "an option to set must be NAME=VALUE", "Write it as max-failures=…."),
    ],
)
def test_an_option_that_can_not_be_set_differs_from_one_that_there_is_not(
    text: str, error: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=error) as caught:
        parse_settings([text])
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize("text", ["9.json", "2026-11-30.json", "50MB.json", "./50"])
def test_a_limits_file_that_is_missing_is_not_taken_for_a_rate(text: str) -> None:
    with pytest.raises(LimitsRefused, match="does not exist") as caught:
        load_limits(text)
    assert f"drainer limits -b BROKER --out {text.removeprefix('./')}`" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", ".", "/"])
def test_a_folder_is_no_limits_file(text: str) -> None:
    with pytest.raises(LimitsRefused, match=r"can't be read: Is a directory") as caught:
        load_limits(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["50/m", "300/s", "0.5/h", "7/h", "2.5/s", "1/m", "5000/s"])
def test_a_rate_is_shown_in_the_unit_in_which_a_person_would_type_it(text: str) -> None:
    assert RATE.show(parse_rate(text)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.2, "200ms"), (5400, "90m"), (1000.5, "1000.5s"), (1e-6, "0.001ms")],
)
def test_a_duration_is_shown_in_the_unit_in_which_a_person_would_type_it(
    seconds: float, text: str
) -> None:
    assert DURATION.show(seconds) == text


@pytest.mark.parametrize("kind", [DURATION, RATE])
@given(st.floats(1e-12, 3e9))
def test_what_is_shown_can_be_typed(kind: ValueType, number: float) -> None:
    assert kind.parse(kind.show(number)) == pytest.approx(number, rel=1e-14)


@pytest.mark.parametrize(("size", "text"), [(1536, "1536"), (1_234_567 * 1024, "1234567KiB")])
def test_a_size_is_shown_in_all_its_digits(size: int, text: str) -> None:
    assert SIZE.show(size) == text


def test_pairs_are_names_and_values_and_what_is_none_is_not_shown() -> None:
    assert parse_pairs([]) == {}
    texts = ["a=0", "a=", "url=http://x/?q=1", " b = c "]
    assert parse_pairs(texts) == {"a": "", "url": "http://x/?q=1", "b": " c "}
    for text in ("", "hush", "=1", " =1"):
        with pytest.raises(UsageError) as caught:
            parse_pairs(["fine=1", text])
        assert str(caught.value) == "must be NAME=VALUE"


@pytest.mark.parametrize(
    ("text", "first", "most", "on_threads", "auto"),
    [
        (" 7 ", 7, 7, 7, False),
        ("AUTO", 20, 2_000, 200, True),
        ("auto:500", 20, 500, 500, True),
        ("auto:5", 5, 5, 5, True),
    ],
)
def test_a_concurrency_is_a_number_or_found(
    text: str, first: int, most: int, on_threads: int, auto: bool
) -> None:
    found = parse_concurrency(text)

    assert (found.first, found.most, found.is_auto) == (first, most, auto)
    assert (found.most_for(threads=False), found.most_for(threads=True)) == (most, on_threads)
    assert parse_concurrency(str(found)) == found
    assert Concurrency.of(7) == Concurrency.fixed(7)


def test_a_deadline_is_so_long_from_now() -> None:
    for text, hours in {"6h": 6, "90m": 1.5, "1h30m": 1.5, " 30s ": 1 / 120}.items():
        assert parse_deadline(text, NOW) == NOW + timedelta(hours=hours)


def test_a_deadline_may_be_a_date_as_a_command_to_resume_has_it() -> None:
    assert parse_deadline("2026-11-21T08:00:00+01:00", NOW) == NOW + timedelta(hours=13)
    assert parse_deadline("2026-11-21T08:00", NOW).utcoffset() is not None


def test_a_time_of_day_is_the_next_one_here() -> None:
    assert parse_deadline("08:00:00", NOW) == parse_deadline("08:00", NOW)
    for text in ("08:00", "8:00", "23:59", "00:00"):
        found = parse_deadline(text, NOW)
        assert NOW < found <= NOW + timedelta(hours=25)
        assert (found.strftime("%H:%M"), found.utcoffset() is None) == (text.rjust(5, "0"), False)
    here = NOW.astimezone()
    found = parse_deadline(here.strftime("%H:%M"), here)
    assert timedelta(hours=22) < found - here < timedelta(hours=26), "now is tomorrow's"


def test_a_text_that_nothing_can_write_is_refused_as_it_is_typed() -> None:
    assert parse_text("café ✓\n") == "café ✓\n"
    with pytest.raises(UsageError, match="is not UTF-8"):
        parse_text("caf\udce9")
