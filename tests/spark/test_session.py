"""A session has what drainer's laws depend on, or there is none."""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
from py4j import java_gateway, protocol  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark import driver, spark_session
from drainer.spark.daemon import unzipped
from drainer.spark.python_worker import forget_zip_files
from drainer.spark.session import context_on
from drainer.spark.settings import SparkLook
from kafka.topic import eventually
from spark.story import Story


def test_a_setting_that_would_break_a_law_is_refused() -> None:
    with pytest.raises(UsageError, match=r"spark\.speculation=true is not possible: "):
        spark_session(conf={"spark.speculation": "true"})


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Which they would read again for each task."""

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


def test_zip_files_that_were_imported_from_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ZipFile(tmp_path / "kit.zip", "w") as kit:
        kit.writestr("kit_that_is_zipped/__init__.py", "")
        kit.writestr("kit_that_is_zipped/one.py", "")
        kit.writestr("kit_that_is_zipped/two.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "kit.zip"))
    import_module("kit_that_is_zipped.one")
    assert [path for path in sys.path_importer_cache if "kit.zip" in path] != []

    forget_zip_files()

    assert [path for path in sys.path_importer_cache if "kit.zip" in path] == []
    import_module("kit_that_is_zipped.two")


def test_another_user_of_the_machine_can_not_speak_to_a_local_session(spark: SparkSession) -> None:
    known = dict(spark.sparkContext.getConf().getAll())
    assert known["spark.authenticate"] == "true"
    assert known["spark.driver.bindAddress"] == "127.0.0.1"
    assert not [name for name in known if "secret" in name], "Spark keeps it to itself"


def test_another_user_of_the_machine_can_not_read_what_a_local_session_keeps(
    spark: SparkSession, events: Path
) -> None:
    folder = Path(spark.sparkContext.getConf().get("spark.local.dir", ""))
    assert folder.parent == events.with_name("blocks"), "where the setting says"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.glob("blockmgr-*"))


def test_a_jvm_that_dies_in_a_call_writes_no_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as jvm:

        def die() -> None:
            called, _ = jvm.accept()
            with called:
                called.recv(1)
                # Closed so, it is reset.
                called.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        dies = threading.Thread(target=die)
        dies.start()
        port = jvm.getsockname()[1]
        client = java_gateway.GatewayClient(
            gateway_parameters=java_gateway.GatewayParameters(address="127.0.0.1", port=port)
        )
        answer = client.send_command("a call\n")
        dies.join()
    logging.getLogger().error("of others")

    assert answer == protocol.ERROR
    assert [record.message for record in caplog.records] == ["of others"]


def test_slots_that_other_jobs_have_are_waited_for_and_that_is_said(
    spark: SparkSession, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"

    def hold(given: Iterable[int]) -> Iterator[int]:
        numbers = iter(given)
        (tmp_path / f"held-{next(numbers)}").touch()
        while not gate.exists():
            time.sleep(0.02)
        yield from numbers

    class Printed(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            gate.touch()

    held = spark.sparkContext.parallelize(range(2), 2).mapPartitions(hold)
    holding = threading.Thread(target=held.collect)
    holding.start()
    eventually(lambda: len(list(tmp_path.glob("held-*"))) == 2, "both slots are held")
    story.fill([["a"], ["b"]])
    story.printed = Printed()
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)

    summary = story.run()

    holding.join()
    assert summary.exit_code == 0
    assert story.printed == ["no slot of Spark's is free: other jobs have them"]
