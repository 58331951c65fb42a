"""`drainer inspect --full --engine spark` as a process; what it finds is tested in tests/spark."""

from __future__ import annotations

from command.conftest import operations
from command.process import Command


def test_a_master_in_the_environment_is_for_a_whole_look_alone(command: Command) -> None:
    topic = command.topic(operations(20))
    master = {"DRAINER_SPARK_MASTER": "local[1]", "DRAINER_TASKS": "7"}
    what = [*command.what(topic), "--from", "earliest"]

    outcome = command("inspect", *what, "-o", "json", env=master)

    assert outcome.answer["reading"]["tasks"] is None
