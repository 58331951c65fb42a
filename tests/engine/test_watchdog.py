"""Handlers that block the event loop are named, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import drainer
from drainer.engine import watchdog
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from engine.made_up_kafka import OnTheLoop, OnThreads, Rehearsal, in_lanes, work_on_a_thread
from simulation.loop import work


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "EVERY_S", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED", 2)


def blocked_by(handler: OnTheLoop | OnThreads, folder: Path, count: int) -> str | None:
    """The line that blocked the event loop, in a drain of ``count`` sub-messages and keys."""
    rehearsal = Rehearsal(folder, in_lanes(count), LocalSettings(concurrency=100))
    return rehearsal.drain(handler).last.health.blocked_by


@pytest.mark.parametrize("file", [__file__, f"{Path(drainer.__file__).parent}_acme/handler.py"])
def test_an_async_handler_that_blocks_is_named_with_its_line(file: str, tmp_path: Path) -> None:
    """Also in a package whose name begins with drainer."""
    source = "import time\nasync def fetch(sub):\n    time.sleep(0.2)\n"
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)

    assert blocked_by(OnTheLoop(names["fetch"]), tmp_path, 10) == f"{file}:3 in fetch"


def test_one_that_waits_and_one_that_computes_are_not_named(tmp_path: Path) -> None:
    async def compute(sub: SubMessage) -> None:
        for number in range(10_000):
            hash(str(number))

    for number, step in enumerate((lambda sub: work(0.05), compute)):
        (tmp_path / str(number)).mkdir()
        assert blocked_by(OnTheLoop(step), tmp_path / str(number), 300) is None


def test_one_that_blocks_on_threads_is_not_named(tmp_path: Path) -> None:
    assert blocked_by(OnThreads(lambda sub: work_on_a_thread(0.05)), tmp_path, 500) is None
