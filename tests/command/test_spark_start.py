"""Ctrl-C while a drain on Spark is still starting: it reports that nothing was handled."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from command.conftest import distinct
from command.process import Command
from kafka.topic import eventually

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
ON_SPARK = ("--engine", "spark", "--master", "local[2]")
REACHED_WITHIN_S = 120.0  # where much else runs
HANDLER = """
import time
from pathlib import Path
import drainer

class Slow(drainer.Handler):
    def open(self, context):
        self.place = Path(context.options["place"])
        self.stay("open")

    def split(self, message):
        self.stay("split")
        yield drainer.SubMessage("a")

    def stay(self, where):
        if self.place.name == where:
            self.place.touch()
            time.sleep(2)

    async def handle(self, sub):
        self.place.with_name("handled").touch()
"""


@pytest.mark.parametrize(
    ("place", "reported", "has_plan"),
    [
        ("jvm", "■ interrupted while Spark was starting; nothing was handled", False),
        pytest.param(
            "open",
            "■ interrupted by SIGINT while Spark's tasks were checked; nothing was handled",
            False,
            marks=pytest.mark.long,
        ),
        pytest.param(
            "split",
            "■ Stopped on request; nothing was handled. At most 20 messages left",
            True,
            marks=pytest.mark.long,
        ),
    ],
)
def test_ctrl_c_before_the_first_call_reports_that_nothing_was_handled(
    command: Command, tmp_path: Path, place: str, reported: str, *, has_plan: bool
) -> None:
    topic, reached = command.topic(distinct(20)), tmp_path / place
    what = command.what(topic, f"{command.handler(HANDLER)}:Slow")
    chosen = ("--from", "earliest", "--yes", "--set", f"place={reached}")
    running = command.start("run", *what, *chosen, *ON_SPARK)
    eventually(
        lambda: runs_spark(running.pid) if place == "jvm" else reached.exists(),
        f"it reaches {place}",
        REACHED_WITHIN_S,
    )
    running.signal(signal.SIGINT)
    outcome = running.ends(4)

    assert reported in (outcome.out + outcome.err).splitlines()
    assert "\tat " not in outcome.err
    assert not (tmp_path / "handled").exists()
    assert command.left_behind == ([command.plan(topic).name] if has_plan else [])
    assert (f"drainer resume {command.plan(topic).name}" in outcome.out) is has_plan


def test_ctrl_c_while_spark_starts_prints_the_command_to_resume_a_drain_with_work_left(
    command: Command, tmp_path: Path
) -> None:
    topic, reached = command.topic(distinct(20)), tmp_path / "split"
    what = command.what(topic, f"{command.handler(HANDLER)}:Slow")
    chosen = ("--from", "earliest", "--yes", "--set", f"place={reached}")
    running = command.start("run", *what, *chosen)
    eventually(reached.exists, "it splits", REACHED_WITHIN_S)
    running.signal(signal.SIGINT)
    words = running.ends(4).resume_words
    running = command.start(*words, "--yes", *ON_SPARK)
    eventually(lambda: runs_spark(running.pid), "it starts Spark", REACHED_WITHIN_S)
    running.signal(signal.SIGINT)
    outcome = running.ends(4)
    assert "■ interrupted while Spark was starting; nothing was handled" in outcome.out
    assert outcome.resume_words[:2] == words[:2]
    assert "--engine spark" in " ".join(outcome.resume_words)


def runs_spark(parent: int) -> bool:
    """Whether a process has begun a JVM of Spark."""
    children = (path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children"))
    found = (Path(f"/proc/{pid}/cmdline").read_bytes() for each in children for pid in each.split())
    return any(b"pyspark" in each and b"java" in each for each in found)
