"""Pages as HTML: self-contained, escaped, with charts that can be read out; and that of a drain."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest

from builders import a_status, a_summary, changed, counts
from drainer.engine.history import History
from drainer.errors import GroupJoined
from drainer.model.account import Event, EventKind
from drainer.model.latency import Latency
from drainer.model.status import FailureStatus, PartitionResult, Summary
from drainer.text.escape import printable
from drainer.view.page import Page, Plot, Series
from drainer.view.report.chart import draw, time_ticks, value_ticks
from drainer.view.report.file import MARK
from drainer.view.report.page import html
from drainer.view.summary import drain_page

from .facts import fields, items, named, plots, tables
from .samples import ENDED, action
from .test_hostile import MARKUP, PAGES

SVG = "{http://www.w3.org/2000/svg}"


class Reader(HTMLParser):
    """Text of a page, and the elements that it is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.data = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("type", "application/json") in attrs:
            tag = "data"
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "data":
            self.data += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def history(seconds: int = 60, **changes: object) -> History:
    made = History()
    for n in range(2 * seconds):
        found = a_status(3, elapsed_s=n / 2, sub_messages=counts(done=n * 500), in_flight=90)
        made.add(changed(found, **changes))
    return made


def page_of(found: Summary | None = None, course: History | None = None, **changes: object) -> Page:
    about = action(**changes)  # type: ignore[arg-type]
    return drain_page(about, found or a_summary(), course or history(), ENDED)


@pytest.fixture(scope="module")
def written() -> tuple[Page, str]:
    page = PAGES["drain"]()
    return page, html(page, ENDED)


def test_a_page_loads_nothing_and_has_all_facts_and_no_markup_from_elsewhere(
    written: tuple[Page, str],
) -> None:
    page, text = written
    read = Reader(text)
    assert not {"script", "img", "iframe", "object", "embed", "base"} & set(read.tags)
    assert read.links == ["data:,"]
    assert "default-src 'none'" in text
    assert not re.findall(r"@import|url\((?!#)", text)
    assert read.text.count(MARKUP) >= 4
    assert MARK in text.encode()[:1024]
    cells = [cell for table in tables(page) for row in table.rows for cell in row]
    cells += [text for field in fields(page).items() for text in field]
    for cell in cells:
        for line in (cell if isinstance(cell, str) else cell.text).split("\n"):
            assert " ".join(printable(line).split()) in read.text


def test_every_chart_is_read_out_and_no_two_ids_are_alike(written: tuple[Page, str]) -> None:
    page, text = written
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(charts) == len(plots(page))
    for chart in charts:
        root = ET.fromstring(chart)
        title, desc = root[0], root[1]
        assert (title.tag, desc.tag) == (f"{SVG}title", f"{SVG}desc")
        assert title.text
        assert desc.text
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_colours_of_charts_are_the_pages(written: tuple[Page, str]) -> None:
    _, text = written
    for chart in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        used = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", chart))
        assert all(ink.startswith("var(--") or ink == "none" for ink in used), used
    defined = set(re.findall(r"(--[\w-]+):", text))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined


def test_a_drain_s_page_has_its_data_the_verdict_first_and_all_rows_on_demand() -> None:
    stopped = GroupJoined("consumers joined group reindexer", hint="stop them")
    parts = {n: PartitionResult(0, 10, 10, 10) for n in range(40)}
    parts[33] = PartitionResult(0, 10, 5, 5)
    ended = a_summary(
        status="failed",
        exit_code=3,
        cause=stopped,
        partitions=parts,
        elapsed_s=600,
        plan=str(Path(MARKUP).absolute()),
    )
    read = Reader(html(page_of(ended, History()), ENDED))
    assert orjson.loads(read.data) == orjson.loads(orjson.dumps(ended.as_json()))
    assert "<" not in read.data
    text = read.text
    places = ("Drain of orders for group", "consumers joined", "stop them", "drainer resume")
    found = [text.index(each) for each in (*places, "Account", "28 more rows")]
    assert found == sorted(found)
    assert "committed 33 0 10 5 5 5 offsets left 0 0" in text
    assert "2026-03-14 18:54:40 CET (2026-03-14 17:54:40 UTC) to 2026-03-14 19:04:40 CET" in text


def test_the_plots_of_a_drain_describe_what_is_seen_in_them() -> None:
    latency = Latency.of(100, 0.01, [0.01] * 95 + [0.2] * 6)
    course = history(
        failures=FailureStatus(failures=7),
        latency_recent=latency,
        trouble="no broker",
        hottest=(("'hot'", 4_000), ("'warm'", 2), ("'cold'", 1)),
    )
    page = page_of(a_summary(latency=latency), course, warnings=("careful",))
    found = plots(page)
    assert "second, at most 1,000" in found["throughput"].description
    assert "p50 10ms, p95 200ms, p99 200ms" in found["latency"].description
    assert "failing" in found
    assert any("no broker" in row for table in tables(page) for row in table.rows)
    assert [label for label, *_ in named(page)["sub-key"].rows] == ["'hot'", "'warm'"]
    assert fields(page)["cluster"].startswith("4L6g3nShT")
    assert any("careful" in str(item) for item in items(page))
    assert "failing" not in plots(page_of())


def test_commands_on_a_page_can_be_copied_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = a_summary(status="interrupted", exit_code=4, plan="orders.plan")
    (way,) = page_of(found).ways_on
    assert way.value == f"drainer resume {tmp_path}/orders.plan"


def drawn(seconds: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    return draw(Plot("c", "T", "t", ENDED, seconds, [Series("a", values)], ""))


def test_a_chart_has_round_figures_the_clock_and_gaps_where_nothing_is_known() -> None:
    found = drawn((0, 3_600, 7_200), (math.nan, 3, 4))
    assert [text for _, text in found["ys"]] == ["0", "1", "2", "3", "4"]
    assert [text for _, text, _ in found["xs"]] == ["19:30", "20:00", "20:30", "21:00"]
    half_past, *_ = found["xs"]
    assert half_past[0] == pytest.approx(52 + 338 * (25 * 60 + 20) / 7_200)
    assert found["lines"] == [("c1", "M221.0 55.5L390.0 10.0")]
    assert [x for x, _, anchor in drawn((0, 90), (1, 1))["xs"] if anchor == "end"] == [390]


@pytest.mark.parametrize(
    ("most", "unit", "labels"),
    [
        (0, "", "0 1"),
        (0.3, "", "0 0.1 0.2 0.3"),
        (5, "", "0 2 4 6"),
        (200, "", "0 50 100 150 200"),
        (890, "", "0 500 1k"),
        (1_600, "", "0 500 1k 1.5k 2k"),
        (7e6, "", "0 2M 4M 6M 8M"),
        (0, "s", "0 1s"),
        (0.0007, "s", "0 0.2ms 0.4ms 0.6ms 0.8ms"),
        (0.3, "s", "0 100ms 200ms 300ms"),
        (1.7, "s", "0 500ms 1s 1.5s 2s"),
        (50, "s", "0 15s 30s 45s 1m"),
        (200, "s", "0 1m 2m 3m 4m"),
    ],
)
def test_values_have_round_steps_that_hold_them_all(most: float, unit: str, labels: str) -> None:
    ticks = value_ticks(most, unit)
    assert [text for _, text in ticks] == labels.split()
    assert ticks[-1][0] >= most * (1 - 1e-9)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (4, ["0", "1s", "2s", "3s", "4s"]),
        (95, ["0", "30s", "1m", "1m 30s"]),
        (599, ["0", "2m", "4m", "6m", "8m"]),
        (600, ["19:06", "19:08", "19:10", "19:12", "19:14"]),
        (4 * 3_600, ["20:00", "21:00", "22:00", "23:00"]),
        (2 * 86_400, ["15 Mar 00:00", "15 Mar 12:00", "16 Mar 00:00", "16 Mar 12:00"]),
        (14 * 86_400, ["18 Mar", "22 Mar", "26 Mar"]),
    ],
)
def test_a_short_run_has_elapsed_time_and_a_long_one_the_clock_at_round_minutes(
    seconds: float, labels: list[str]
) -> None:
    assert [text for _, text in time_ticks(ENDED, 0, seconds)] == labels


def test_a_report_has_who_changed_what_and_why() -> None:
    at = ENDED.isoformat()
    history = (
        Event(at, EventKind.BEGUN, "ana@db1", offsets=dict.fromkeys(range(9))),
        Event(at, EventKind.CHANGED, "ben@db1", MARKUP, ("concurrency 200 → 50",)),
    )
    page = Reader(html(page_of(a_summary(history=history)), ENDED))
    assert "group at 0:none 1:none 2:none 3:none and 5 more" in page.text
    assert "concurrency 200 → 50; reason: " + MARKUP in page.text
    assert "ben@db1" in page.text
