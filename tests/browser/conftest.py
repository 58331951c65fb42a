"""A real browser for pages of drainer's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from needs import missing

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ALONE = (  # it loads nothing by itself
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")  # while it is there, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        missing("there is no Chromium (Debian: apt-get install chromium)")
    words = [*_ALONE, "--no-sandbox"] if os.geteuid() == 0 else list(_ALONE)
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=words)
        yield running
        running.close()
