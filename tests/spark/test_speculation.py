"""Speculative copies of tasks, which drainer refuses, against the fence of attempts."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from drainer.kafka.settings import ClientSettings
from drainer.model.status import Summary
from drainer.spark.assign import work
from scenarios.spark_chaos.standalone import standalone
from spark.connect import classic
from spark.story import Story
from spark.trouble import states

HOSTS = ("127.0.0.1", "127.0.0.2")  # Spark makes no copy on the host of the first attempt
SPECULATION = {
    "enabled": "true",
    "interval": "50ms",
    "multiplier": "1.01",
    "quantile": "0.1",
    "minTaskRuntime": "8s",
}
CONCURRENCY = 20
LANES, OF_HOT = 40, 1200  # of a lane that one task has for 24 s


def drain_speculating(master: str, story: Story) -> tuple[Summary, list[str]]:
    """Drain where Spark speculates; in a process that has no other session."""
    conf = SparkConf().setMaster(master).setAppName("tests").set("spark.executor.memory", "512m")
    conf.set("spark.driver.host", HOSTS[0]).set("spark.driver.bindAddress", HOSTS[0])
    conf.set("spark.ui.enabled", "false").set("spark.eventLog.enabled", "true")
    conf.set("spark.eventLog.dir", (story.folder / "events").as_uri())
    conf.set("spark.eventLog.compress", "false")
    for name, value in SPECULATION.items():
        conf.set(f"spark.speculation{'' if name == 'enabled' else f'.{name}'}", value)
    work.WORTH_BYTES = 1  # any is worth a task
    context = SparkContext(conf=conf)
    try:
        # As seen by drainer, which refuses it: a session may have what its context has not.
        spark = SparkSession.builder.config("spark.speculation", "false").getOrCreate()
        summary = replace(story, spark=spark).run(tasks=4, concurrency=CONCURRENCY, wait_ms="20")
        return summary, story.printed
    finally:
        context.stop()


def copies(folder: Path) -> Iterator[dict[str, Any]]:
    """Speculative attempts of tasks, as Spark noted their ends."""
    for path in folder.rglob("*"):
        for line in path.read_text().splitlines() if path.is_file() else ():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                event = json.loads(line)
                if event["Task Info"]["Speculative"]:
                    yield event


@classic
@pytest.mark.long
def test_a_speculative_copy_of_a_task_handles_nothing_that_the_first_attempt_handles(
    bootstrap: str, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (tmp_path / "events").mkdir()
    story = Story(ClientSettings(bootstrap), topic_name, tmp_path)
    story.fill([["hot", f"k{n % LANES}"] for n in range(OF_HOT)])
    spawn = multiprocessing.get_context("spawn")
    with standalone(tmp_path) as cluster, ProcessPoolExecutor(1, spawn) as other:
        for host in HOSTS:
            cluster.worker(cores=2, host=host)
        summary, printed = other.submit(drain_speculating, cluster.url, story).result()

    assert list(copies(tmp_path / "events")), "Spark ran no copy"
    workers = {line["pid"] for line in story.lines if "hot" in line.get("keys", ())}
    assert len(workers) > 1, "the copy took nothing over"
    story.ensure_done(summary, repeated=None)
    assert story.repeated <= CONCURRENCY  # of what was in flight when the copy took over
    assert [line for line in printed if "Spark repeats it" in line]
    assert states(tmp_path) == []
