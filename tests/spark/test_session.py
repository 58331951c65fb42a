"""A session has the settings that drainer's laws depend on, or it is refused."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark import driver, spark_session
from drainer.spark.session.settings import SessionSettings, SparkSettings
from drainer.spark.session.start import drain_session, session_on
from spark.connect import local
from spark.story import Story
from spark.trouble import slots_taken


def test_a_setting_that_would_break_a_law_is_refused() -> None:
    with pytest.raises(UsageError, match=r"spark\.speculation=true is not possible: "):
        spark_session(conf={"spark.speculation": "true"})


def test_without_java_the_hint_is_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(Refused, match="Spark needs Java") as raised:
        spark_session()
    assert "JDK" in (raised.value.hint or "")


def test_a_master_that_is_not_there_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"

    with (
        pytest.raises(Refused, match=f"Spark's master does not answer at {master}"),
        session_on(SessionSettings(master), "tests"),
    ):
        pass


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def environment(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # The executable may have another name there, but not the prefix.
            yield pa.RecordBatch.from_pydict({"prefix": [sys.prefix]})

    assert spark.range(0, 1, 1, 1).mapInArrow(environment, "prefix string").collect() == [
        (sys.prefix,)
    ]


@local
def test_another_user_of_the_machine_can_not_reach_a_local_session_nor_read_what_it_keeps(
    spark: SparkSession, events: Path
) -> None:
    known = dict(spark.sparkContext.getConf().getAll())
    assert known["spark.authenticate"] == "true"
    assert known["spark.driver.bindAddress"] == "127.0.0.1"
    assert not [name for name in known if "secret" in name]
    folder = Path(known["spark.local.dir"])
    assert folder.parent == events.with_name("blocks"), "where the setting points"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.glob("blockmgr-*"))


def test_slots_that_other_jobs_have_are_waited_for_and_that_is_reported(
    spark: SparkSession, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Printed(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            leave()

    story.fill([["a"], ["b"]])
    story.printed = Printed()
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)

    with slots_taken(spark, tmp_path) as leave:
        summary = story.run()

    assert summary.exit_code == 0
    assert story.printed == [driver.NOT_BEGUN]


@local
def test_a_setting_that_is_taken_for_the_number_of_slots_is_named(spark: SparkSession) -> None:
    lines: list[str] = []
    spark.conf.set("spark.default.parallelism", "200")
    try:
        for conf in ({}, {"drainer.tasks": "8"}):
            with drain_session(SparkSettings(conf=conf), spark, "drain", lines.append):
                pass
    finally:
        spark.conf.unset("spark.default.parallelism")

    (line,) = lines
    assert "200" in line
    assert "drainer.tasks" in line
