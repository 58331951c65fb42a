"""The report of a backlog as a page: what is urgent first, and all that the terminal has."""

from __future__ import annotations

import re
from dataclasses import replace

from drainer.escape import printable
from drainer.insight.inspection import Inspection, SplitFailures
from drainer.insight.report.inspect import inspection_page
from drainer.insight.statistics.contents import Bin
from drainer.insight.view.inspect import fields, hot_row, warnings
from drainer.kafka.topic import Replicas

from .test_inspect import inspection, partition
from .test_report import ENDED, EVIL, Reader


def shown(found: Inspection) -> str:
    return Reader(inspection_page(found, ENDED)).text


def test_the_headline_and_the_hot_row_come_first() -> None:
    found = inspection()
    text = shown(found)
    hot = printable(hot_row(found) or "")
    assert text.index("~1,000 messages behind, the oldest 1h 00m old") < text.index(hot)
    assert text.index(hot) < text.index("Hottest sub-keys")


def test_warnings_come_before_all_figures() -> None:
    found = inspection(partition(0, leader=""), partition(1, lost=7))
    found = replace(found, remarks=("retention has deleted up to 7 records",))
    text = shown(found)
    assert len(warnings(found)) == 2
    for warning in warnings(found):
        assert text.index(warning) < text.index("Keys and values")
    assert "0 no leader 3/3" in text


def test_what_the_terminal_says_in_words_is_in_the_page() -> None:
    found = inspection()
    text = shown(found)
    for label, value, note in fields(found):
        assert f"{label} {value}" in text
        assert note in text


def test_a_sample_is_told_with_its_intervals_and_a_whole_reading_with_counts() -> None:
    assert re.search(r"'app\\x1b\[2Jadmin' 38% \S+ and \S+", shown(inspection()))
    assert "'app\\x1b[2Jadmin' 38% 75 " in shown(inspection(full=True))


def test_the_charts_tell_what_is_seen_in_them() -> None:
    text = shown(inspection())
    assert "Skew of the work" in text
    assert "the hottest alone has 38%" in text
    assert "Backlog by size of message" in text


def test_without_a_handler_there_is_no_skew() -> None:
    text = shown(replace(inspection(), skew=None, handler=None))
    assert "Skew of the work" not in text
    assert "Hottest message keys" in text


def test_ages_are_told_from_the_oldest_to_the_youngest() -> None:
    ages = (Bin(0, 3600, 0.1), Bin(3600, 7200, 0.3), Bin(7200, 10_800, 0.6))
    page = inspection_page(replace(inspection(), ages=ages), ENDED)
    assert "in offsets for each 1h; half of them are younger than 3h." in Reader(page).text
    chart = re.search(r'<svg[^>]*"ages-title.*?</svg>', page, re.DOTALL)
    assert chart is not None
    assert re.findall(r">(\d+h|0)</text>", chart[0])[:4] == ["3h", "2h", "1h", "0"]


def test_ages_that_are_all_in_one_step_are_not_drawn() -> None:
    assert "Backlog by age" not in shown(replace(inspection(), ages=(Bin(0, 60, 1.0),)))


def test_no_backlog_is_told_and_nothing_is_drawn() -> None:
    empty = partition(0, 0, bytes=0, age_s=None)
    found = inspection(empty, full=True)
    contents = replace(found.contents, sizes=None, hottest_keys=())
    page = inspection_page(replace(found, ages=(), contents=contents, skew=None), ENDED)
    assert "No backlog" in Reader(page).text
    assert "svg" not in Reader(page).tags


def test_of_many_partitions_the_worst_come_first_and_all_on_demand() -> None:
    parts = [partition(n, 100 + n) for n in range(30)]
    parts[7] = partition(7, leader="", replicas=Replicas((1, 2), ()))
    text = shown(inspection(*parts))
    assert "18 more partitions" in text
    assert "in sync 7 no leader 0/2 29 100 100 229 129" in text


def test_what_comes_from_messages_is_never_markup() -> None:
    found = inspection()
    assert found.skew is not None
    evil = replace(found.skew.hottest[0], name=EVIL)
    found = replace(
        found,
        topic=EVIL,
        group=replace(found.group, name=EVIL, state=EVIL),
        handler=EVIL,
        skew=replace(found.skew, hottest=(evil,), kinds=(evil,)),
        contents=replace(found.contents, hottest_keys=(evil,)),
        failures=SplitFailures(3, EVIL, EVIL),
    )
    read = Reader(inspection_page(found, ENDED))
    assert "script" not in read.tags
    assert read.text.count(EVIL) >= 8


def test_no_two_ids_are_alike_and_every_colour_is_defined() -> None:
    page = inspection_page(inspection(), ENDED)
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids
    assert len(ids) == len(set(ids))
    defined = set(re.findall(r"(--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= defined
