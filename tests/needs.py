"""Programs that tests need and a laptop may not have."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from typing import NoReturn

import pytest

from kafka.topic import eventually


def missing(reason: str) -> NoReturn:
    """Skip a test for what is not installed; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def await_answer(url: str, process: subprocess.Popen[bytes], within_s: float) -> None:
    """Wait until the server that this process is answers."""

    def answers() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except OSError:
            assert process.poll() is None, f"it ended with exit code {process.poll()}: {url}"
            return False

    eventually(answers, f"{url} answers", within_s)
