"""Reports with hostile text in them, opened in a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from drainer.limits.view import limits_page
from drainer.view import page as facts
from drainer.view.report.page import html
from operations.modelled import ModelledCluster, run
from view.samples import ENDED
from view.test_hostile import MARKUP, PAGES

pytestmark = pytest.mark.long

WIDE, NARROW = 1280, 360
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ALONE = (  # it loads nothing by itself
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# All but the data that goes along, which no browser runs.
SCRIPTS = "document.querySelectorAll('script:not([type=\"application/json\"])').length"


@pytest.fixture(scope="module")  # while it is there, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Headless Chromium. A laptop without one skips what needs it; in CI that is a failure."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "there is no Chromium (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    words = [*_ALONE, "--no-sandbox"] if os.geteuid() == 0 else list(_ALONE)
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=words)
        yield running
        running.close()


def limits(folder: Path) -> facts.Page:
    found = run(ModelledCluster(), folder / "limits.json")
    return limits_page(replace(found, cluster_id=MARKUP), Path("limits.json"))


@pytest.mark.parametrize(
    ("made", "charts"),
    [
        (lambda _: PAGES["drain"](), ["Left above the watermark", "In the handler", "Lanes"]),
        (lambda _: PAGES["inspection"](), []),
        (lambda _: PAGES["estimate"](), []),
        (limits, []),
    ],
    ids=["drain", "inspection", "estimate", "limits"],
)
def test_a_report_opens_anywhere_runs_nothing_and_can_be_read(
    browser: Browser, tmp_path: Path, made: Callable[[Path], facts.Page], charts: list[str]
) -> None:
    report = tmp_path / "report.html"
    report.write_text(html(made(tmp_path), ENDED))
    sizes: list[tuple[int, Literal["light", "dark"]]] = [(NARROW, "light"), (NARROW, "dark")]
    for width, colours in (*sizes, (WIDE, "light")):
        page, said, loaded = _opened(browser, report, width, colours)
        assert (said, loaded) == ([], [report.as_uri()])
        assert page.title() != "pwned"
        assert page.evaluate(SCRIPTS) == 0
        assert page.locator("img").count() == 0
        assert MARKUP in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in charts:
            assert page.get_by_role("img", name=name).count() == 1
        _check_charts(page, least=280)
        places = ["h1", "tbody td", "footer p", *(["figure p", "svg text"] if charts else [])]
        for place in places:
            assert _contrast(page, place) >= 4.5, (colours, place)
        page.close()


def _opened(
    browser: Browser, report: Path, width: int, colours: Literal["light", "dark"]
) -> tuple[Page, list[str], list[str]]:
    """A page, what the browser had to say, and what it loaded."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    said: list[str] = []
    loaded: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(report.as_uri(), wait_until="load")
    return page, said, loaded


def _check_charts(page: Page, least: int) -> None:
    for chart in page.locator("svg").all():
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
