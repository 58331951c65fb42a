"""Certificates of handlers whose ``split`` is known to be the same everywhere."""

from __future__ import annotations

from functools import partial

import pytest

from drainer.certify import certify
from drainer.certify.split import split_report


@pytest.fixture
def no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits are compared in this process alone; test_split compares them with those of others."""
    monkeypatch.setattr(certify, "split_report", partial(split_report, processes=0))
