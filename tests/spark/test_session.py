"""A session has what drainer's laws depend on, or there is none."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark import driver, spark_session
from drainer.spark.session.daemon import unzipped
from drainer.spark.session.settings import SparkLook
from drainer.spark.session.start import context_on
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
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"

    with (
        pytest.raises(Refused, match=f"Spark's master does not answer at {master}"),
        context_on(SparkLook(master), "tests"),
    ):
        pass


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def environment(_: object) -> str:  # its python may have another name there
        return sys.prefix

    assert spark.sparkContext.parallelize([0], 1).map(environment).collect() == [sys.prefix]


def test_workers_of_a_local_session_have_nothing_of_pyspark_from_a_zip_file(
    spark: SparkSession,
) -> None:
    def zipped(_: object) -> list[str]:
        modules = [module for module in sys.modules if module.startswith("pyspark.")]
        files = [getattr(sys.modules[module], "__file__", None) for module in modules]
        return [text for text in (*map(str, files), *sys.path) if "pyspark.zip" in text]

    assert spark.sparkContext.parallelize([0], 1).flatMap(zipped).collect() == []


@pytest.mark.parametrize("installed", ["4.3.0", "4.2.0", None])
def test_pyspark_is_taken_from_a_folder_if_that_has_what_the_zip_file_has(
    installed: str | None, tmp_path: Path
) -> None:
    zipped, folder = tmp_path / "pyspark.zip", tmp_path / "site-packages"
    with ZipFile(zipped, "w") as kit:
        kit.writestr("pyspark/version.py", "4.3.0")
    (folder / "pyspark").mkdir(parents=True)
    if installed is not None:
        (folder / "pyspark" / "__init__.py").write_text("")
        (folder / "pyspark" / "version.py").write_text(installed)
    path = [str(zipped), str(folder)]

    assert unzipped(path) == (path[1:] if installed == "4.3.0" else path)


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
    assert story.printed == ["no slot of Spark's is free: other jobs have them"]
