from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.text.escape import shorten
from drainer.text.mask import short_key
from drainer.view import figures


@pytest.mark.parametrize(
    ("figure", "texts"),
    [
        (
            figures.duration,
            {
                0: "0s",
                0.0001: "<1ms",
                0.0949: "95ms",
                0.0951: "95ms",
                9.97: "10s",
                59.7: "1m 00s",
                3599.4: "59m 59s",
                3599.6: "1h 00m",
                14 * 86400: "14 days",
                -1: "0s",
                None: "unknown",
                math.inf: "unknown",
            },
        ),
        (
            figures.size,
            {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1024**2 - 1: "1 MiB", 1024**6: "1024 PiB"},
        ),
        (
            figures.rate,
            {
                0: "0",
                0.04: "<0.1",
                5: "5",
                5.04: "5",
                9.96: "10",
                89_123.4: "89,123",
                math.inf: "unknown",
            },
        ),
        (figures.percent, {0: "0.0%", -0.1: "0.0%", 0.4129: "41.2%", 0.99999: "99.9%", 1: "100%"}),
        (
            figures.share,
            {
                0: "0.0%",
                0.0004: "<0.1%",
                0.0287: "2.9%",
                0.384: "38%",
                0.996: "99.6%",
                0.9997: ">99.9%",
                1: "100%",
            },
        ),
        (figures.about, {950: "950", 129_600: "130k", 4_780_000: "4.8M"}),
    ],
)
def test_figures_read_well(figure: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: figure(value) for value in texts} == texts


def test_nouns_are_counted() -> None:
    assert figures.counted(1, "message") == "1 message"
    assert figures.counted(1_234_567, "message") == "1,234,567 messages"


@given(st.text(), st.integers(0, 20))
def test_a_long_text_keeps_both_its_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) == min(len(text), width)
    first, cut, last = short.partition("…") if len(text) > width > 0 else (text[:width], "…", "")
    assert text.startswith(first)
    assert text.endswith(last)
    assert cut


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("key", "width", "text"),
    [
        (("tenant", 4), 24, "('tenant', 4)"),
        ("a\x1b[2Jb", 24, "'a\\x1b[2Jb'"),
        ("x" * 10_000_000, 13, "'xxxxx…xxxxx'"),
        (b"y" * 10_000_000, 12, "b'yyyy…yyyy'"),
        (Rude(), 24, "<Rude>"),
    ],
)
def test_sub_keys_are_shown_whatever_they_are(key: Hashable, width: int, text: str) -> None:
    assert short_key(key, width) == text
