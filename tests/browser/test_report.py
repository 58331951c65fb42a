"""Reports of a real backlog and its drain, looked at in a real browser."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from command.process import Command
from drainer.limits.view import limits_page
from drainer.sandbox import Broker
from drainer.view.report.page import html
from kafka.topic import Topic
from operations.modelled import ModelledCluster, run

EVIL = "<script>document.title = 'pwned'</script>"
EVIL_ERROR = "<img src=x onerror=\"document.title = 'pwned'\">"
HANDLER = f"""
import asyncio, json
from drainer import SubMessage

class Hostile:
    def split(self, message):
        for key in json.loads(message.value):
            yield SubMessage(key)

    async def handle(self, sub):
        await asyncio.sleep(0.02)
        if sub.key == "doc-3":
            raise ValueError({EVIL_ERROR!r})
"""
WIDE, NARROW = 1280, 360

pytestmark = pytest.mark.long  # what the pages say, and that it is escaped, tests/view shows

# All but the data that goes along, which no browser runs.
SCRIPTS = "document.querySelectorAll('script:not([type=\"application/json\"])').length"


@pytest.fixture(scope="module")
def command(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    made = Command(tmp_path_factory.mktemp("command"), broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def what(command: Command) -> list[str]:
    """The options for a backlog whose sub-keys, and the errors about them, are markup.

    Which group it is of, each command says for itself.
    """
    topic = Topic(command.bootstrap, f"t-{uuid.uuid4().hex[:12]}", 2)
    for partition in range(2):
        values = [json.dumps([EVIL, f"doc-{n % 5}"]) for n in range(100)]
        topic.produce(values, partition=partition)
    handler = command.home / "hostile.py"
    handler.write_text(HANDLER)
    where = ["-b", command.bootstrap, "--topic", topic.name]
    return [*where, "--handler", f"{handler}:Hostile", "--from", "earliest"]


@pytest.fixture(scope="module")
def report(command: Command, what: list[str]) -> Path:
    """That of a drain of two seconds, which these tests only look at."""
    more = ["--group", "drains", "--on-failure", "dead-letter", "--retries", "0"]
    command("run", *what, *more, "--yes", "--report", "r.html", code=6)
    return command.folder / "r.html"


@dataclass
class Seen:
    """A page that was opened, and all that the browser had to say and to load."""

    page: Page
    said: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


def opened(
    browser: Browser, report: Path, width: int, colours: Literal["light", "dark"] = "light"
) -> Seen:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    seen = Seen(page)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.loaded.append(request.url))
    page.goto(report.as_uri(), wait_until="load")
    return seen


@pytest.fixture
def seen(browser: Browser, report: Path) -> Iterator[Seen]:
    found = opened(browser, report, WIDE)
    yield found
    found.page.close()


def _check_charts(page: Page, least: int, count: int = 6) -> None:
    charts = page.locator("svg").all()
    assert len(charts) == count
    for chart in charts:
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > least
        assert box["height"] > least / 3
        widest = chart.evaluate(
            "chart => Math.max(...[...chart.querySelectorAll('path')].map("
            "path => path.getBoundingClientRect().width))"
        )
        assert widest > box["width"] / 2
        assert chart.locator("text:visible").count() > 3


def test_the_report_of_a_drain_opens_anywhere(seen: Seen, report: Path) -> None:
    page = seen.page
    assert page.get_by_role("heading", level=1).inner_text().startswith("! Drained, with 40 dead")
    assert "✓ adds up" in page.inner_text("main")
    _check_charts(page, 300)
    assert seen.said == []
    assert seen.loaded == [report.as_uri()]


def test_markup_in_sub_keys_and_errors_is_text(seen: Seen) -> None:
    page = seen.page
    assert page.title() != "pwned"
    assert page.evaluate(SCRIPTS) == 0
    assert page.locator("img").count() == 0
    assert EVIL in page.inner_text("main")
    assert EVIL_ERROR in page.inner_text("main")


def test_charts_can_be_read_out(seen: Seen) -> None:
    for chart in ("Throughput", "Left above the watermark", "In the handler", "Lanes"):
        assert seen.page.get_by_role("img", name=chart).count() == 1


def test_it_can_be_read_in_the_dark_and_on_a_phone(browser: Browser, report: Path) -> None:
    for colours in ("light", "dark"):
        found = opened(browser, report, NARROW, colours)
        page = found.page
        _check_charts(page, 280)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        for place in ("h1", ".cards dt", "figure p", "tbody td", "svg text", "footer p"):
            assert _contrast(page, place) >= 4.5, (colours, place)
        assert found.said == []
        page.close()


def test_the_report_of_a_backlog_opens_anywhere(
    browser: Browser, command: Command, what: list[str]
) -> None:
    command("inspect", *what, "--group", "inspects", "--report", "i.html")
    report = command.folder / "i.html"
    for colours in ("light", "dark"):
        found = opened(browser, report, NARROW, colours)
        page = found.page
        assert page.get_by_role("heading", level=1).inner_text().startswith("200 messages behind")
        assert page.evaluate(SCRIPTS) == 0
        assert EVIL in page.inner_text("main")
        assert page.get_by_role("img", name="Skew of the work").count() == 1
        _check_charts(page, 280, page.locator("figure").count())
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert (found.said, found.loaded) == ([], [report.as_uri()])
        page.close()


def test_the_report_of_limits_opens_anywhere(browser: Browser, tmp_path: Path) -> None:
    limits = run(ModelledCluster(), tmp_path / "limits.json")
    report = tmp_path / "l.html"
    page_of = limits_page(replace(limits, cluster_id=EVIL), Path("limits.json"))
    report.write_text(html(page_of, datetime.now(UTC)))
    for colours in ("light", "dark"):
        found = opened(browser, report, NARROW, colours)
        page = found.page
        assert "MB/s a broker, at 10 KiB" in page.get_by_role("heading", level=1).inner_text()
        assert page.evaluate(SCRIPTS) == 0
        assert EVIL in page.inner_text("main")
        assert page.get_by_role("img", name="The boundary by size of message").count() == 1
        _check_charts(page, 280, 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        for place in ("h1", ".cards dt", "figure p", "tbody td", "svg text", "footer p"):
            assert _contrast(page, place) >= 4.5, (colours, place)
        assert (found.said, found.loaded) == ([], [report.as_uri()])
        page.close()


def _contrast(page: Page, place: str) -> float:
    """That of a text to what is behind it, as WCAG has it."""
    found = page.locator(place).first.evaluate(
        """element => {
          const seen = window.getComputedStyle(element);
          const ink = element.closest('svg') ? seen.fill : seen.color;
          let back = element;
          while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)')
            back = back.parentElement;
          return [ink, getComputedStyle(back).backgroundColor];
        }"""
    )
    darker, lighter = sorted(_luminance(colour) for colour in found)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
