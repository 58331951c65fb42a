"""Drains in virtual time, for every test of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.made_up_kafka import VirtualDrains


@pytest.fixture
def virtual(tmp_path: Path) -> VirtualDrains:
    """The test's own drains and their time, which passes only while all wait."""
    return VirtualDrains(tmp_path)
