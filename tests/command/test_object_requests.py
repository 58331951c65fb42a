"""Requests of a drain to an object store while it runs, counted there."""

from __future__ import annotations

import time

import pytest

from command.conftest import distinct
from command.process import Command
from command.test_spark_chaos import ensure_all_are_gone, spark_at_home
from s3 import S3
from scenarios.spark_chaos.processes import below

__all__ = ["spark_at_home"]  # for each test here as well
pytestmark = pytest.mark.long

TASKS = 2
PER_TASK, OF_DRIVER = 3.0, 3.0  # requests per second: beat, plan and what they reported
COUNTED_S = 30.0


def test_a_task_makes_three_requests_per_second_at_most(command: Command, s3: S3) -> None:
    topic = command.topic(distinct(20_000))
    plan = ("--plan", s3.uri(f"{topic.name}/orders.plan.json"))
    spark = ("--engine", "spark", "--master", f"local[{TASKS}]", "-c", "20")
    running = command.begin(topic, *spark, *plan, pause_ms=200)
    command.wait_for(running, "done", 200)
    before, begun_s = len(s3.requests()), time.monotonic()
    time.sleep(COUNTED_S)
    requests, took_s = s3.requests()[before:], time.monotonic() - begun_s
    processes = below(running.pid)
    running.kill()
    ensure_all_are_gone(processes)

    assert len({line.pid for line in command.record.lines()}) == TASKS
    per_s = len(requests) / took_s
    assert per_s <= TASKS * PER_TASK + OF_DRIVER, f"{per_s:.1f} per second"
