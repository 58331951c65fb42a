"""A real browser for pages of drainer's."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from needs import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")  # while it is there, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if find_spec("playwright") is None:
        missing("there is no Playwright: pip install -e '.[dev,scenarios]'")
    from scenarios.browser import INSTALL, browsing, chromium  # noqa: PLC0415 - it is there

    if chromium() is None:
        missing(INSTALL)
    with browsing() as running:
        yield running
