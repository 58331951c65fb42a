"""`drainer inspect --full --engine spark` as a process; what it finds is tested in tests/spark."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command
from kafka.topic import eventually

ENDLESS = """
import time, drainer
class Slow(drainer.Handler):
    def split(self, message):
        open(__file__ + ".splits", "w").close()
        time.sleep(60)
        return []
    def handle(self, sub): raise AssertionError
"""


@pytest.mark.long
def test_ctrl_c_ends_it_at_once(command: Command, tmp_path: Path) -> None:
    topic = command.topic(operations(10))
    handler = tmp_path / "endless.py"
    handler.write_text(ENDLESS)
    what = ["-b", command.bootstrap, "--topic", topic.name, "--group", "g", "--from", "earliest"]
    running = command.start(
        "inspect", *what, "--handler", f"{handler}:Slow", "--full", "--master", "local[1]"
    )
    splits = handler.with_name("endless.py.splits")
    eventually(lambda: splits.exists() or not running.running, "a task splits", 300)

    running.signal(signal.SIGINT)
    outcome = running.ends(4, within_s=60)

    assert "■ interrupted" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_master_in_the_environment_is_for_a_whole_look_alone(command: Command) -> None:
    topic = command.topic(operations(20))
    master = {"DRAINER_SPARK_MASTER": "local[1]", "DRAINER_TASKS": "7"}
    what = [*command.what(topic), "--from", "earliest"]

    outcome = command("inspect", *what, "-o", "json", env=master)

    assert outcome.answer["reading"]["tasks"] is None
