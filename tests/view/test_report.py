"""The report of a drain as a page: what it tells, how it is escaped, and what is in its charts."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from drainer.core.bundles import Bundling
from drainer.core.latency import Latency
from drainer.core.progress import Counts
from drainer.engine.history import History
from drainer.engine.status import AutoStatus, FailureStatus, PartitionResult, RuleStatus, Summary
from drainer.errors import GroupJoined
from drainer.policy.concurrency import Concurrency
from drainer.view.report.chart import Clock, Line, over_time, zone
from drainer.view.report.drain import drain_page
from drainer.view.report.file import MARK
from view.samples import action, status, summary

ENDED = datetime(2026, 3, 14, 19, 4, 40, tzinfo=timezone(timedelta(hours=1), "CET"))
EVIL = "<script>document.title = 'pwned'</script>"
SVG = "{http://www.w3.org/2000/svg}"


class Reader(HTMLParser):
    """What a page shows, and what elements it is made of."""

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


def history(seconds: int = 600, **changes: object) -> History:
    made = History()
    for n in range(2 * seconds):
        found = replace(
            status(3), elapsed_s=n / 2, sub_messages=Counts(n * 500, n * 500), running=90
        )
        made.add(replace(found, **changes))  # type: ignore[arg-type]
    return made


def made(found: Summary | None = None, course: History | None = None, **changes: object) -> str:
    about = replace(action(), **changes)  # type: ignore[arg-type]
    return drain_page(about, found or summary(), course or history(), ENDED)


def shown(found: Summary | None = None, course: History | None = None, **changes: object) -> str:
    return Reader(made(found, course, **changes)).text


def test_the_headline_tells_how_it_ended_how_long_and_how_much() -> None:
    text = shown(replace(summary(), sub_messages=Counts(5_000, 4_990, 0, 10, 0)))
    assert "Drain of orders for group reindexer ✓ Drained" in text
    assert "Messages finished 3,000,000" in text
    assert "Sub-messages finished 5,000" in text
    assert "This run took 1h 02m" in text
    assert "The account ✓ adds up" in text
    assert "sub-messages 5,000 4,990 0 0 10 0" in text


def test_the_times_are_told_here_and_in_utc() -> None:
    text = shown(replace(summary(), elapsed_s=600))
    assert "From 2026-03-14 18:54:40 CET to 2026-03-14 19:04:40 CET" in text
    assert "2026-03-14 17:54:40 UTC to 2026-03-14 18:04:40 UTC" in text


def test_times_in_utc_are_told_once() -> None:
    page = drain_page(action(), summary(), history(), ENDED.astimezone(UTC))
    assert Reader(page).text.count("18:04:40 UTC") == 2  # the end, and when it was written


def test_one_that_was_interrupted_tells_why_and_how_to_go_on() -> None:
    cause = GroupJoined("a consumer joined group reindexer", hint="stop it, then resume")
    found = replace(
        summary(),
        status="interrupted",
        exit_code=4,
        cause=cause,
        plan="/var/my plans/orders.plan",
        partitions={0: PartitionResult(1_000, 9_000, 5_000, 5_000)},
        messages=Counts(100, 90, 0, 0, 10),
    )
    text = shown(found)
    assert "■ Interrupted, at most 4,000 offsets to go" in text
    assert "a consumer joined group reindexer stop it, then resume" in text
    assert "drainer resume '/var/my plans/orders.plan'" in text
    assert "0 1000 9000 5000 5000 4,000 offsets to go" in text


def test_one_that_is_done_tells_no_way_to_go_on() -> None:
    assert "drainer resume" not in shown()


def test_an_account_that_does_not_add_up_is_told_and_must_not_be_resumed() -> None:
    found = replace(summary(), status="failed", exit_code=1, messages=Counts(9, 1, 1, 1, 1))
    text = shown(found)
    assert "✗ DOES NOT ADD UP" in text
    assert "do not resume" in text
    assert "drainer resume" not in text


def test_dead_letters_come_with_the_commands_for_them() -> None:
    failures = FailureStatus(failures=9, retries=6, dead_letter_topic="orders.dead")
    found = replace(
        summary(), exit_code=6, failures=failures, sub_messages=Counts(103, 100, 3, 0, 0)
    )
    text = shown(found, bootstrap_servers="kafka:9092", handler="my handlers.py:Reindex")
    assert "! Drained, with 3 dead letters" in text
    assert "9 failed attempts, 6 retries." in text
    assert "drainer dead list --dead-letter-topic orders.dead -b kafka:9092" in text
    assert "--handler 'my handlers.py:Reindex'" in text


def test_an_empty_backlog_has_no_charts_and_no_account() -> None:
    found = replace(summary(), status="empty", elapsed_s=0.0, plan=None)
    page = drain_page(action(), found, History(), ENDED)
    assert "Nothing to drain" in Reader(page).text
    assert "svg" not in Reader(page).tags


def test_one_that_was_over_at_once_says_that_there_is_nothing_to_draw() -> None:
    short = History()
    short.add(status())
    assert "before there was anything to draw" in shown(course=short)


def test_what_comes_from_messages_is_never_markup() -> None:
    failures = FailureStatus(
        failures=1, errors=((f"ValueError: {EVIL} & \x1b[31m\x00", 1),), dead_letter_topic=EVIL
    )
    cause = GroupJoined(EVIL, hint=EVIL)
    found = replace(
        summary(), status="halted", exit_code=5, failures=failures, cause=cause, plan=f"/{EVIL}"
    )
    found = replace(found, sub_messages=Counts(2, 1, 1), left_alone={EVIL: 1})
    course = history(hottest=((EVIL, 10), ((EVIL, b"\x00"), 9)), trouble=EVIL)
    values = dict.fromkeys(("topic", "group", "handler", "bootstrap_servers", "cluster_id"), EVIL)
    page = made(found, course, warnings=(EVIL,), **values)
    read = Reader(page)
    assert "script" not in read.tags
    assert EVIL in read.text
    assert "\x1b" not in page
    assert "\x00" not in page
    assert "\\x1b[31m" in read.text


def test_the_page_holds_for_programs_what_the_command_prints() -> None:
    ended = replace(summary(), plan=EVIL)
    read = Reader(made(ended))

    assert orjson.loads(read.data) == orjson.loads(orjson.dumps(ended.as_json()))
    assert "<" not in read.data


def test_a_page_loads_nothing_and_says_so_to_the_browser() -> None:
    page = made()
    read = Reader(page)
    assert not {"script", "img", "iframe", "object", "embed", "base"} & set(read.tags)
    assert read.links == ["data:,"]
    assert "default-src 'none'" in page
    assert not re.findall(r"@import|url\((?!#)", page)


def test_a_page_is_known_as_a_report_by_its_beginning() -> None:
    assert MARK in made().encode()[:1024]


def test_the_charts_of_a_drain_tell_what_is_seen_in_them() -> None:
    latency = Latency.of(100, 0.01, [0.01] * 95 + [0.2] * 6)
    course = history(
        failures=FailureStatus(failures=7), latency_recent=latency, trouble="no broker"
    )
    text = shown(replace(summary(), latency=latency), course)
    assert "Sub-messages finished per second; most at" in text
    assert "1,000/s." in text
    assert "90 on average, of 1,000 that concurrency allows" in text
    assert "p50 10ms, p95 0.2s, p99 0.2s" in text
    assert "Failures, added up" in text
    assert "What it waited out" in text


def test_a_drain_without_failures_has_no_chart_of_them() -> None:
    assert "Failures, added up" not in shown()
    assert "No attempt failed." in shown()


def test_of_many_partitions_some_are_told_at_once_and_all_on_demand() -> None:
    parts = {n: PartitionResult(0, 10, 10, 10) for n in range(40)}
    parts[33] = PartitionResult(0, 10, 5, 5)
    read = Reader(made(replace(summary(), partitions=parts)))
    assert "28 more partitions" in read.text
    assert re.search(r"committed 33 0 10 5 5 5 offsets to go 0 0", read.text)
    assert read.text.count("✓") >= 39


def test_every_chart_is_read_out_and_no_two_ids_are_alike() -> None:
    page = made(course=history(failures=FailureStatus(failures=7)))
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == 5
    for chart in charts:
        root = ET.fromstring(chart)
        title, desc = root[0], root[1]
        assert (title.tag, desc.tag) == (f"{SVG}title", f"{SVG}desc")
        assert title.text
        assert desc.text
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_colours_of_charts_are_the_pages() -> None:
    page = made()
    for chart in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        used = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", chart))
        assert all(ink.startswith("var(--") or ink == "none" for ink in used), used
    defined = set(re.findall(r"(--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= defined


def test_the_text_of_charts_is_text() -> None:
    chart = over_time("c", "Title", "Tells.", clock(1, 2, 3), [Line("a", [1, 2, 3], "c1")], "")
    words = [element.text for element in ET.fromstring(chart.svg).iter(f"{SVG}text")]
    assert "seconds since 19:04:40 UTC+01:00" in words


def clock(*seconds: float) -> Clock:
    return Clock(ENDED, seconds)


def test_a_long_drain_is_told_by_the_clock() -> None:
    assert clock(0, 60).label == "seconds since 19:04:40 UTC+01:00"
    assert clock(0, 7_200).label == "time, UTC+01:00"
    page = over_time("c", "T", "t", clock(0, 7_200), [Line("a", [1, 2], "c1")], "").svg
    words = [element.text for element in ET.fromstring(page).iter(f"{SVG}text")]
    assert "20:00" in words


@pytest.mark.parametrize("unit", ["", "s", "bytes", "per second"])
@pytest.mark.parametrize("log", [False, True])
def test_values_that_never_change_are_drawn_too(unit: str, log: bool) -> None:
    for value in (0, 5, 5e12):
        lines = [Line("a", [value] * 3, "c1", filled=True)]
        assert over_time("c", "T", "t", clock(0, 1, 2), lines, unit, log=log).svg


def test_a_zone_is_told_by_its_offset() -> None:
    assert zone(ENDED) == "UTC+01:00"
    assert zone(ENDED.astimezone(UTC)) == "UTC"
    assert zone(ENDED.astimezone(timezone(timedelta(hours=-3.5)))) == "UTC-03:30"


def test_nothing_that_draws_is_loaded_before_a_report_is_written() -> None:
    code = "import drainer.cli.app, sys; print(*{'matplotlib', 'jinja2', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_plan_is_named_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = replace(summary(), status="interrupted", exit_code=4, plan="orders.plan")
    assert f"drainer resume {tmp_path}/orders.plan" in shown(found)


def test_a_concurrency_that_was_found_is_told_and_drawn() -> None:
    course = History()
    for n in range(600):
        course.add(replace(status(), elapsed_s=n / 2, concurrency=20 + n // 2, running=10))
    auto = AutoStatus(320, 2_000, 300, False, "throughput stopped growing", 900.0)
    about = replace(action(), concurrency=Concurrency.auto())
    text = Reader(drain_page(about, replace(summary(), auto=auto), course, ENDED)).text
    assert "10 on average, of up to 319 that concurrency allows" in text
    assert "concurrency auto, settled at 300" in text


def test_what_rules_took_out_is_told_by_their_names() -> None:
    rules = RuleStatus({"emails": 4_800}, {"limit": 7}, {EVIL: 3}, {EVIL: "no field 'kind'"})
    text = shown(replace(summary(), rules=rules))
    assert "emails 4,800 0 0 limit 0 7 0" in text
    assert f"{EVIL} 0 0 3 no field 'kind'" in text
    assert "What rules took out" not in shown()


def test_with_many_in_a_call_concurrency_counts_calls() -> None:
    bundling = Bundling(most=50)
    text = shown(bundling=bundling)
    assert "90 on average, in 1,000 calls that concurrency allows" in text
