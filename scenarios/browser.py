"""A real browser: headless Chromium, for pictures and tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ALONE = (  # With these options, the browser loads nothing by itself.
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL = "there is no Chromium (Debian: apt-get install chromium)"


def chromium() -> str | None:
    """Return the path of the program, or None if it is not installed."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Provide a browser until the end of the block. No other event loop runs in this thread
    meanwhile.

    Raises FileNotFoundError if none is installed.
    """
    found = chromium()
    if found is None:
        raise FileNotFoundError(INSTALL)
    words = [*_ALONE, "--no-sandbox"] if os.geteuid() == 0 else list(_ALONE)
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=words)
        yield running
        running.close()
