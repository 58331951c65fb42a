"""Drains on a session that a notebook has already."""

from __future__ import annotations

import logging
import os
import runpy
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import drainer.spark
from drainer.errors import PlanRefused, Refused, Signalled, UsageError
from drainer.model.status import Status
from drainer.spark import api, driver
from drainer.spark.session.session import Session
from drainer.view.terminal import Terminal
from spark.connect import classic
from spark.story import HANDLER, Story
from spark.trouble import slots_taken


class Interrupting:
    """A view at which a person presses Ctrl-C as soon as something is done."""

    interrupted = False

    def __enter__(self) -> Interrupting:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, status: Status) -> None:
        if status.progress.sub_messages.done and not self.interrupted:
            self.interrupted = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def drained_by(
    spark: SparkSession, story: Story, wait_ms: str = "0", **changes: Any
) -> drainer.spark.Drained:
    settings: dict[str, Any] = {
        "topic": story.topic,
        "group": story.group,
        "handler": f"{HANDLER}:Recorder",
        "plan": story.plan_path,
        "conf": {"drainer.state": story.state},
        "client": {"bootstrap.servers": story.settings.bootstrap_servers},
        "from_": "earliest",
        "options": {"record": str(story.record), "wait_ms": wait_ms},
    }
    return drainer.spark.drain(spark, **(settings | changes))


def everything_global(spark: SparkSession) -> dict[str, Any]:
    found = {
        "sql": sorted((row.key, row.value) for row in spark.sql("SET").collect()),
        "tags": spark.getTags(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "filters": list(logging.getLogger().filters),
    }
    if Session(spark).is_remote:
        return found
    context = spark.sparkContext
    conf = sorted(context.getConf().getAll())
    job = context.getLocalProperty("spark.job.description")
    return {**found, "conf": conf, "job": job, "files": list(context.listFiles)}


def test_a_drain_on_a_session_that_is_there_leaves_it_as_it_was_and_can_be_interrupted(
    spark: SparkSession, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fill([[f"k{number % 7}", f"j{number}"] for number in range(100)])

    # Like a class that the notebook defines, no executor can import this one.
    recorder = runpy.run_path(str(HANDLER), run_name="__main__")["Recorder"]

    def drain(wait_ms: str = "0", **changes: Any) -> drainer.spark.Drained:
        return drained_by(spark, story, wait_ms, handler=recorder, concurrency=2, **changes)

    before = everything_global(spark)
    with monkeypatch.context() as patched:
        patched.setattr(api, "progress_view", lambda _: Interrupting())
        with pytest.raises(Signalled, match="SIGINT"):
            drain("100")  # A stop may take a second to reach the tasks.
    assert 0 < len(story.places("end")) < 200

    with pytest.raises(PlanRefused, match="another drain") as raised:
        drain(group="another")
    assert raised.value.__notes__ == ["hint: Name another file."]
    with pytest.raises(PlanRefused, match="another drain"):
        drain(commit=False)

    drained = drain()

    assert drained.summary.exit_code == 0
    story.ensure_all()
    assert story.repeated == 0
    (partition,) = drained.partitions().collect()
    assert partition.asDict() == {
        **{"partition": 0, "start": 0, "end": 100, "watermark": 100, "committed": 100},
        "to_go": 0,
    }
    assert {row.of: row.done for row in drained.counts().collect()} == {
        "messages": 100,
        "sub_messages": 200,
    }
    assert drained.failures().count() == 0
    assert everything_global(spark) == before


@classic
def test_a_session_that_no_drain_can_have_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.conf, "get", lambda *_: "true")
    with pytest.raises(UsageError, match="handle everything twice"):
        Session.of(spark)

    def stopped(*_: str) -> str:
        raise ConnectionRefusedError

    monkeypatch.setattr(spark.conf, "get", stopped)
    with pytest.raises(Refused, match="has stopped"):
        Session.of(spark)


def test_a_drain_that_waits_for_slots_can_be_interrupted(
    spark: SparkSession, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Terminal, line: str) -> None:
        if line == driver.NOT_BEGUN:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    story.fill([["a"]])
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)
    monkeypatch.setattr(Terminal, "print_line", interrupt)

    with slots_taken(spark, tmp_path), pytest.raises(Signalled, match="SIGINT"):
        drained_by(spark, story)

    assert story.lines == []
