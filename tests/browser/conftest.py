"""A real browser for pages of drainer's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from needs import missing
from scenarios.browser import INSTALL, browsing, chromium


@pytest.fixture(scope="module")  # while it is there, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if chromium() is None:
        missing(INSTALL)
    with browsing() as running:
        yield running
