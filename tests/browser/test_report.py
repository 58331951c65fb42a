"""Reports with hostile text in them, opened in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drainer.view.report.page import html
from view.facts import plots
from view.samples import ENDED
from view.test_hostile import MARKUP, PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

WIDE, NARROW = 1280, 360
# All but the data that goes along, which no browser runs.
SCRIPTS = "document.querySelectorAll('script:not([type=\"application/json\"])').length"


def test_a_report_opens_anywhere_runs_nothing_and_can_be_read(
    browser: Browser, tmp_path: Path
) -> None:
    made = PAGES["drain"]()
    report = tmp_path / "report.html"
    report.write_text(html(made, ENDED))
    for width in (NARROW, WIDE):
        page, output, loaded = _opened(browser, report, width)
        assert (output, loaded) == ([], [report.as_uri()])
        assert page.title() != "pwned"
        assert page.evaluate(SCRIPTS) == 0
        assert page.locator("img").count() == 0
        assert MARKUP in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for plot in plots(made).values():
            assert page.get_by_role("img", name=plot.title).count() >= 1
        _check_charts(page, least=280)
        page.close()


def _opened(browser: Browser, report: Path, width: int) -> tuple[Page, list[str], list[str]]:
    """A page, the browser's messages, and what it loaded."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    output: list[str] = []
    loaded: list[str] = []
    page.on("console", lambda message: output.append(message.text))
    page.on("pageerror", lambda error: output.append(str(error)))
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(report.as_uri(), wait_until="load")
    return page, output, loaded


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
