"""Sizes, durations and pairs, as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drainer.cli.values import (
    parse_concurrency,
    parse_deadline,
    parse_duration,
    parse_list,
    parse_pairs,
    parse_share,
    parse_size,
)
from drainer.errors import UsageError
from drainer.policy.concurrency import Concurrency


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("4096", 4096),
        ("7b", 7),
        ("7B", 7),
        ("1KiB", 1024),
        ("1kib", 1024),
        ("256MiB", 256 * 1024**2),
        ("256 MiB", 256 * 1024**2),
        ("  256MiB  ", 256 * 1024**2),
        ("1.5GiB", 1536 * 1024**2),
        ("1kB", 1000),
        ("2MB", 2_000_000),
        ("3GB", 3_000_000_000),
        ("0.5kb", 500),
    ],
)
def test_a_size_is_bytes(text: str, size: int) -> None:
    found = parse_size(text)

    assert found == size
    assert type(found) is int


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        ("10s", 10),
        ("10 S", 10),
        ("200ms", 0.2),
        ("0.05s", 0.05),
        ("2m", 120),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


WRONG = ["", " ", "-1", "+1", "1.", ".5", "1e3", "1_000", "one", "0x10", "inf", "nan", "1 2", "s"]


@pytest.mark.parametrize("text", [*WRONG, "1s", "1TiBs", "1M", "1kbit"])
def test_a_wrong_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size like 256MiB") as caught:
        parse_size(text)

    assert repr(text) in str(caught.value)
    assert "mib" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", [*WRONG, "1d", "1MiB", "1min", "1 s s", "1m30s"])
def test_a_wrong_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration like 10s or 200ms") as caught:
        parse_duration(text)

    assert repr(text) in str(caught.value)
    assert "ms" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        ([], {}),
        (["a=1"], {"a": "1"}),
        (["a=1", "b=2"], {"a": "1", "b": "2"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a="], {"a": ""}),
        (["url=http://x/?q=1"], {"url": "http://x/?q=1"}),
        ([" a = b "], {"a": " b "}),
    ],
)
def test_pairs_are_names_and_values(texts: list[str], pairs: dict[str, str]) -> None:
    assert parse_pairs(texts) == pairs


@pytest.mark.parametrize("text", ["", "a", "=1", " =1", "="])
def test_what_is_not_a_pair_is_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pairs(["fine=1", text])

    assert str(caught.value) == "takes name=value, and was given something else"


@pytest.mark.parametrize(
    ("text", "first", "most", "on_threads", "auto"),
    [
        ("1", 1, 1, 1, False),
        ("200", 200, 200, 200, False),
        (" 7 ", 7, 7, 7, False),
        ("auto", 20, 2_000, 200, True),
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
    assert found.as_json() == (str(found) if auto else most)


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "many", "1.5", "auto:", "auto:0", "auto:-3", "auto 5", "auto:x", "9" * 9],
)
def test_what_is_no_concurrency_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a number") as refused:
        parse_concurrency(text)

    assert "auto:500" in (refused.value.hint or "")


def test_a_number_is_a_fixed_concurrency() -> None:
    assert Concurrency.of(7) == Concurrency.fixed(7)
    assert Concurrency.of(Concurrency.auto()) == Concurrency.auto()


NOW = datetime(2026, 11, 20, 18, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "hours"), [("6h", 6), ("90m", 1.5), ("0.5h", 0.5), (" 30s ", 1 / 120)]
)
def test_a_deadline_may_be_so_long_from_now(text: str, hours: float) -> None:
    assert parse_deadline(text, NOW) == NOW + timedelta(hours=hours)


@pytest.mark.parametrize("text", ["08:00", "8:00", "23:59", "00:00"])
def test_a_time_of_day_is_the_next_one_here(text: str) -> None:
    found = parse_deadline(text, NOW)
    assert NOW < found <= NOW + timedelta(hours=25)
    assert found.strftime("%H:%M") == text.rjust(5, "0")
    assert found.utcoffset() is not None


def test_the_time_that_it_is_now_is_tomorrows() -> None:
    here = NOW.astimezone()
    found = parse_deadline(here.strftime("%H:%M"), here)
    assert timedelta(hours=22) < found - here < timedelta(hours=26)


def test_a_deadline_may_be_a_moment() -> None:
    assert parse_deadline("2026-11-21T08:00+00:00", NOW) == datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert parse_deadline("2026-11-21T08:00", NOW).astimezone().hour == 8


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "6 parsecs", "20261121", "8"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_deadline(text, NOW)
    assert "08:00" in str(refused.value.hint)


def test_a_deadline_that_has_passed_is_refused() -> None:
    with pytest.raises(UsageError, match="has passed"):
        parse_deadline("2026-11-20T17:59+00:00", NOW)


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 80 % ", 0.8), ("100%", 1.0), ("1", 1.0)]
)
def test_a_share_is_a_percentage_or_a_part_of_one(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "0", "0%", "-5%", "101%", "1.1", "nan", "inf", "five"])
def test_what_is_not_a_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a share"):
        parse_share(text)


def test_a_list_has_commas_between_and_nothing_empty() -> None:
    assert parse_list(" 100, 1KiB ") == ("100", "1KiB")
    for text in ("", "1,", ",1", "1,,2"):
        with pytest.raises(UsageError, match="is not a list"):
            parse_list(text)
