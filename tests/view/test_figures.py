from __future__ import annotations

import math
from collections.abc import Hashable

import pytest

from drainer.view import figures


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.0001, "<1ms"),
        (0.01, "10ms"),
        (0.0949, "95ms"),
        (0.0951, "0.1s"),
        (4.21, "4.2s"),
        (9.94, "9.9s"),
        (9.97, "10s"),
        (25.4, "25s"),
        (59.4, "59s"),
        (59.7, "1m 00s"),
        (200, "3m 20s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h 00m"),
        (3725, "1h 02m"),
        (47.5 * 3600, "47h 30m"),
        (14 * 86400, "14 days"),
        (5000 * 86400, "5,000 days"),
        (-1, "0.0s"),
        (None, "unknown"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (256 << 20, "256 MiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (1024**6, "1024 PiB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert figures.size(number) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (0, "0"),
        (0.04, "<0.1"),
        (0.4, "0.4"),
        (9.96, "10"),
        (89_123.4, "89,123"),
        (1e12, "1,000,000,000,000"),
        (math.inf, "unknown"),
    ],
)
def test_rates(per_s: float, text: str) -> None:
    assert figures.rate(per_s) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0.0%"), (-0.1, "0.0%"), (0.4129, "41.2%"), (0.99999, "99.9%"), (1, "100%")],
)
def test_percentages_never_round_up_to_all(fraction: float, text: str) -> None:
    assert figures.percent(fraction) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 messages"), (1, "1 message"), (1_234_567, "1,234,567 messages")],
)
def test_counted_nouns(number: int, text: str) -> None:
    assert figures.counted(number, "message") == text


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abc", 3, "abc"),
        ("abcdefgh", 5, "ab…gh"),
        ("abcdefgh", 4, "ab…h"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_a_long_text_keeps_both_its_ends(text: str, width: int, short: str) -> None:
    assert figures.shorten(text, width) == short


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("doc-17", "'doc-17'"),
        (("tenant", 4), "('tenant', 4)"),
        ("a\x1b[2Jb", "'a\\x1b[2Jb'"),
        ("x" * 10_000_000, "'xxxxx…xxxxx'"),
        (b"y" * 10_000_000, "b'yyyy…yyyyy'"),
        (None, "None"),
        (Rude(), "<Rude>"),
    ],
)
def test_sub_keys_are_shown_whatever_they_are(key: Hashable, text: str) -> None:
    assert figures.sub_key(key, 13 if len(text) == 13 else 12 if "…" in text else 24) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0.0%"), (0.0004, "<0.1%"), (0.0287, "2.9%"), (0.384, "38%"), (1, "100%")],
)
def test_shares_are_rounded(fraction: float, text: str) -> None:
    assert figures.share(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.003, "3ms"), (1, "1s"), (30, "30s"), (60, "1m"), (14_400, "4h"), (86_400, "1d")],
)
def test_round_durations_are_short(seconds: float, text: str) -> None:
    assert figures.plain_duration(seconds) == text
