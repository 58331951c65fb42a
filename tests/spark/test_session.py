"""A session has the settings that drainer's laws depend on, or it is refused. A drain leaves one
that a notebook has already as it was. Each row goes to the task of its number."""

from __future__ import annotations

import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as columns

import drainer.spark
from drainer.errors import PlanRefused, Refused, Signalled, UsageError
from drainer.model.status import Status
from drainer.spark import api, driver, spark_session
from drainer.spark.session.session import Session
from drainer.spark.session.settings import BATCH_ROWS, SessionSettings, SparkSettings
from drainer.spark.session.start import drain_session, private_folders, session_on
from drainer.spark.task import daemon
from drainer.view.terminal import Terminal
from spark.connect import classic, local
from spark.story import HANDLER, Story
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


@classic
def test_workers_are_forked_from_a_process_that_has_drainer_imported_and_only_one_thread(
    spark: SparkSession,
) -> None:
    imports = "import drainer.spark.task.daemon, sys, os; had = set(sys.modules)"
    threads = "assert len(os.listdir('/proc/self/task')) == 1" if sys.platform == "linux" else ""
    # The rest imports pyarrow, which starts a thread.
    rest = "import drainer.spark.task.handling, drainer.spark.reading.slices"
    printed = "print(*sorted(each for each in set(sys.modules) - had if 'drainer' in each))"
    code = "\n".join([imports, threads, rest, printed])
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # It ends its threads before a fork.
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    late = ended.stdout.split()

    assert late
    assert all(name.startswith("drainer.spark.") for name in late)
    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == daemon.__name__


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


def test_folders_that_killed_drivers_left_empty_are_removed(tmp_path: Path) -> None:
    killed, alive, new = (tmp_path / f"drainer-spark-{name}" for name in ("a", "b", "c"))
    for folder in (killed, alive, new):
        folder.mkdir()
    (alive / "blockmgr").touch()
    for folder in (killed, alive):
        os.utime(folder, (0, 0))
    made = Path(private_folders(str(tmp_path)))
    assert {*tmp_path.iterdir()} == {alive, new, made}


def test_slots_that_other_jobs_have_are_waited_for_and_that_is_reported(
    spark: SparkSession, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Printed(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            leave()

    story.handler = f"{HANDLER}:Whole"
    story.fill([["a"]] * 2, [["b"]] * 5)
    story.printed = Printed()
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)

    with slots_taken(spark, tmp_path) as leave:
        summary = story.run()

    story.ensure_done(summary)
    assert story.committed == {0: 2, 1: 5}, (
        "messages that are not split are those of their partition"
    )
    assert story.printed[0].startswith(f"{driver.NOT_BEGUN} (0.2s)")
    begins = driver.NOT_BEGUN, driver.OPENING
    assert all(line.startswith(begins) for line in story.printed)


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


PRINTS_WHAT_ITS_JVM_READS = """
from pathlib import Path
from drainer.spark.session.settings import SessionSettings
from drainer.spark.session.start import session_on

with session_on(SessionSettings("local[1]"), "tests") as session:
    pid = session.spark.sparkContext._gateway.proc.pid
    print(Path(f"/proc/{pid}/maps").read_text())
"""


@local
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_archive_of_classes_is_used_by_later_sessions_and_written_again_on_request(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    del environment["JDK_JAVA_OPTIONS"]  # Java would print them.

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert not done.stderr
        return done.stdout

    assert str(tmp_path) not in run("-c", PRINTS_WHAT_ITS_JVM_READS)
    for _ in range(2):
        run("-m", "drainer", "-q", "spark", "warm")
    (archive,) = (tmp_path / "drainer").iterdir()
    assert str(archive) in run("-c", PRINTS_WHAT_ITS_JVM_READS)


BEGINS_AND_LEAVES = """
from drainer.spark.session.settings import SparkSettings
from drainer.spark.session.start import beginning

with beginning(SparkSettings("local[1]"), "drain") as starting:
    pass
print(starting.gateway.result().proc.wait(10))
"""


@local
def test_a_session_that_no_drain_takes_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BEGINS_AND_LEAVES]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    del environment["JDK_JAVA_OPTIONS"]  # Java would print them.
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    assert (ended.stdout, ended.stderr) == (f"-{signal.SIGKILL.value}\n", "")
    assert list(tmp_path.iterdir()) == []


KILLS_ITS_JVM = """
import threading
from pyspark.sql import SparkSession
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.settings import SessionSettings
from drainer.spark.session.start import session_on

with spark_failures(), session_on(SessionSettings("local[1]"), "tests") as session:
    rows = session.spark.range(0, 1, 1, 1)
    rows.mapInArrow(lambda batches: batches, "id long").collect()
    jvm = session.spark.sparkContext._gateway.proc
    jvm.kill()
    jvm.wait()
    for server in threading.enumerate():
        if "serve_forever" in server.name:
            server.join(2)  # It has printed by then what it prints.
    rows.count()
"""


@local
@pytest.mark.long
def test_when_the_jvm_is_killed_only_drainer_s_own_error_is_printed() -> None:
    command = [sys.executable, "-c", KILLS_ITS_JVM]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)

    assert ended.returncode
    assert "SparkBroke: Spark's JVM is gone: " in ended.stderr
    assert "Exception occurred during processing of request" not in ended.stderr
    assert "EOFError" not in ended.stderr


@local
@pytest.mark.parametrize(
    ("cores", "tasks", "handling"), [(3, None, 3), (3, "20", 20), (24, None, 24), (64, None, 24)]
)
def test_no_more_local_tasks_than_cores_handle_at_once_unless_that_is_wanted(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    tasks: str | None,
    handling: int,
) -> None:
    monkeypatch.setattr(Session, "slots", lambda session: 24)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    conf = {} if tasks is None else {"drainer.tasks": tasks}

    with drain_session(SparkSettings("local[24]", conf), spark, "drain", print) as (_, slots):
        assert slots.handling == handling


@pytest.mark.parametrize("version", [(4, 0), (4, 1)])
@pytest.mark.parametrize("tasks", [3, pytest.param(24, marks=pytest.mark.long)])
def test_a_row_is_in_the_partition_whose_number_it_has(
    spark: SparkSession, tasks: int, version: tuple[int, int]
) -> None:
    rows = spark.range(0, 2 * tasks, 1, 2).selectExpr("id AS key", f"int(id % {tasks}) AS task")

    def partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            number = pa.array([context.partitionId()] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([batch.column(1), number], ["task", "found"])

    session = Session(spark)
    session.version = min(version, session.version)
    placed = session.placed(rows, tasks, columns.col("task"))
    assert placed.columns == ["key", "task"]
    found = placed.mapInArrow(partition, "task int, found int").collect()

    assert len(found) == 2 * tasks
    assert [row.task for row in found] == [row.found for row in found]


def test_a_drain_has_a_session_of_its_own_and_leaves_that_of_its_caller_as_it_was(
    spark: SparkSession,
) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    with Session(spark).draining() as own:
        assert own.conf(name) == str(BATCH_ROWS)
        assert spark.conf.get(name) == before != own.conf(name)
        own.spark.range(3).collect()
    assert spark.conf.get(name) == before
    assert spark.range(3).count() == 3


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
    spark: SparkSession, story: Story, pause_ms: str = "0", **changes: Any
) -> drainer.spark.Drained:
    settings: dict[str, Any] = {
        "topic": story.topic,
        "group": story.group,
        "handler": story.handler,
        "plan": story.plan_path,
        "conf": {"drainer.state": story.state},
        "client": {"bootstrap.servers": story.settings.bootstrap_servers},
        "from_": "earliest",
        "options": {"record": str(story.record.path), "pause_ms": pause_ms},
    }
    return drainer.spark.drain(spark, **(settings | changes))


def everything_global(spark: SparkSession) -> dict[str, Any]:
    found = {
        "sql": sorted((row.key, row.value) for row in spark.sql("SET").collect()),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "filters": list(logging.getLogger().filters),
    }
    if Session(spark).is_remote:
        return {**found, "tags": spark.getTags()}
    context = spark.sparkContext
    conf = sorted(context.getConf().getAll())
    job = context.getLocalProperty("spark.job.description")
    tags, files = context.getJobTags(), list(context.listFiles)
    return {**found, "conf": conf, "job": job, "tags": tags, "files": files}


def test_a_drain_on_a_session_that_is_there_leaves_it_as_it_was_and_can_be_interrupted(
    spark: SparkSession,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story.fill([[f"k{number % 7}", f"j{number}"] for number in range(100)])

    # Like a class that the notebook defines, no executor can import this one.
    recorder = runpy.run_path(str(HANDLER), run_name="__main__")["OnTheLoop"]

    def drain(pause_ms: str = "0", **changes: Any) -> drainer.spark.Drained:
        settings = {"handler": recorder, "concurrency": 2, **changes}
        return drained_by(spark, story, pause_ms, **settings)

    before = everything_global(spark)
    with monkeypatch.context() as patched:
        patched.setattr(api, "progress_view", lambda _: Interrupting())
        with pytest.raises(Signalled, match="SIGINT") as caught:
            drain("100")  # A stop may take a second to reach the tasks.
    call = f"drainer.spark.drain(…, plan={str(story.plan_path)!r}, handler=OnTheLoop, concurrency=2"
    resume = caught.value.summary.resume
    assert resume.startswith(f"{call}, options={{")
    assert caught.value.__notes__[0].startswith(f"resume: {resume} (in the program that defines ")
    assert 0 < len(story.record.done()) < 200

    with pytest.raises(PlanRefused, match="another drain") as raised:
        drain(group="another")
    assert raised.value.__notes__ == ["hint: Name another file with the argument plan."]
    with pytest.raises(PlanRefused, match="another drain"):
        drain(commit=False)

    drained = drain(concurrency=4)

    assert drained.summary.exit_code == 0
    assert "to keep that, add concurrency 2" in capsys.readouterr().err
    assert str(drained) == str(drained.summary)
    in_a_cell = list[str]()
    drained._repr_pretty_(SimpleNamespace(text=in_a_cell.append), cycle=False)
    assert in_a_cell == [str(drained.summary)]
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
        if line.startswith(driver.NOT_BEGUN):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    story.fill([["a"]])
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)
    monkeypatch.setattr(Terminal, "print_line", interrupt)

    with slots_taken(spark, tmp_path), pytest.raises(Signalled, match="SIGINT"):
        drained_by(spark, story)

    assert story.record.whole() == []
