"""The page of a running drain, in a real browser: it updates by itself, and runs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from builders import a_status
from drainer.engine.history import History
from drainer.metrics.server import MetricsServer
from drainer.model.deadline import DeadlineStatus
from drainer.model.status import Status
from drainer.view.status import LivePage
from view.samples import EVIL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

WIDE, NARROW = 1280, 360
AT = datetime(2026, 3, 15, 7, 0, tzinfo=UTC)
UPDATED_MS = 10_000


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1", 0)
    yield made
    made.close()


def running(elapsed_s: float, margin_s: float) -> Status:
    deadline = DeadlineStatus(AT, 3600.0, margin_s, missed=margin_s < 0)
    hottest, eta_s = ((EVIL, 12_345),), 3600.0 - margin_s
    return a_status(
        3, elapsed_s=elapsed_s, eta_s=eta_s, deadline=deadline, hottest=hottest, topic=EVIL
    )


def opened(browser: Browser, url: str, width: int) -> tuple[Page, list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 900})
    output: list[str] = []
    page.on("console", lambda message: output.append(message.text))
    page.on("pageerror", lambda error: output.append(str(error)))
    page.goto(url, wait_until="load")
    return page, output


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_updates_by_itself_and_shows_when_no_answer_comes(
    browser: Browser, server: MetricsServer, width: int
) -> None:
    live = LivePage(History())
    update = server.begin("orders", "reindexer", "d-1", live)

    def report(status: Status) -> None:
        update(status)
        live.add(status)

    for second in range(10):
        report(running(float(second), 1200.0))
    page, output = opened(browser, server.page_url, width)
    assert "✓" in page.inner_text("h1")
    assert "20m 00s before " in page.inner_text("h1")
    assert EVIL in page.inner_text("main")
    assert page.title() != "pwned"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("img", name="Throughput").count() == 1
    order = page.locator("h2").all_inner_texts()
    assert order[:3] == ["Diagnosis", "Progress", "Partitions"]

    report(running(11.0, -timedelta(minutes=42).total_seconds()))
    page.locator("h1", has_text="42m 00s after ").wait_for(timeout=UPDATED_MS)
    assert output == []
    server.close()
    page.get_by_text("No answer since").wait_for(timeout=UPDATED_MS)
    assert "✗" in page.inner_text("h1"), "what was known last stays"
    assert page.title() != "pwned"
    page.close()
