"""A session of Spark, classic or of Spark Connect, as a drain uses it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.settings import BATCH_BYTES, BATCH_ROWS, REMOTE, check_conf

# The settings that a session has while a drain runs on it.
WHILE_DRAINING = {
    # With adaptive execution, each stage is a job of its own. So the stages of a job that began
    # later could run before the last stage of an earlier one.
    "spark.sql.adaptive.enabled": "false",
    # The rows are few and have 64 KiB each, so compiling code for them takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.connect.shuffleDependency.fileCleanup.enabled": "true",
    # If a slice is read again, its chunks may end at other messages, which Spark's checksum would
    # take for another result. drainer has a checksum that does not depend on chunks.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
SLOTS_S, SERVER_SLOTS_S = 1.0, 15.0
KEYS_EACH = 32  # Among this many numbers per partition, some are surely hashed to each of them.
_CHANGING = threading.Lock()  # It is held while settings of a session are changed.
# For each session, the number of drains on it, and the settings that it had before the first drain.
_DRAINING: dict[int, tuple[int, dict[str, str]]] = {}
_SPLITS = re.compile(r"splits=(\d+)")


class Session:
    """A session that a drain runs on. ``spark`` is Spark's own object."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.is_remote = not isinstance(spark, SparkSession)
        major, minor = re.findall(r"\d+", spark.version)[:2]
        self.version = int(major), int(minor)

    @classmethod
    def of(cls, spark: SparkSession) -> Session:
        """Return the session of a program that calls a drain.

        Raises Refused if the session has stopped; UsageError if a drain can't work with one of its
        settings.
        """
        session = cls(spark)
        try:
            with spark_failures():
                speculates = session.conf("spark.speculation")
        except Exception as error:
            raise Refused("this Spark session has stopped", hint="Start another one.") from error
        check_conf({"spark.speculation": speculates})
        return session

    @property
    def ui(self) -> str | None:
        """The address of Spark's web page; None if there is none or it can't be known."""
        return None if self.is_remote else self.spark.sparkContext.uiWebUrl

    @property
    def master(self) -> str:
        """The master. For a server of Spark Connect it is ``REMOTE``, without an address."""
        return REMOTE if self.is_remote else self.conf("spark.master")

    def add_file(self, path: str) -> None:
        """Send a file to the executors, where ``SparkFiles.get`` finds it."""
        if self.is_remote:
            self.spark.addArtifacts(path, file=True)
        else:
            self.spark.sparkContext.addFile(path)

    def add_module(self, path: str) -> None:
        """Send a Python module, or a zip file of modules, to the executors."""
        if self.is_remote:
            self.spark.addArtifacts(path, pyfile=True)
        else:
            self.spark.sparkContext.addPyFile(path)

    def add_to_server(self, py_files: Iterable[str], archives: Iterable[str]) -> None:
        """Send files with code to a server of Spark Connect, whose settings for them are fixed."""
        for path in py_files:
            self.spark.addArtifacts(path, pyfile=True)
        for path in archives:
            self.spark.addArtifacts(path, archive=True)

    @property
    def slots_s(self) -> float:
        """Seconds between two counts of the slots.

        On a server each count is a query, which its web page lists, so it is counted less often.
        """
        return SERVER_SLOTS_S if self.is_remote else SLOTS_S

    def slots(self) -> int:
        """Return the number of tasks that can run at once on the current executors."""
        if not self.is_remote:
            cores = self.spark.sparkContext.defaultParallelism
        else:
            (row,) = self.spark.sql("EXPLAIN SELECT id FROM range(1)").collect()
            found = _SPLITS.search(row[0])
            cores = int(found[1]) if found else 1
        return max(1, cores // int(self.conf("spark.task.cpus", "1")))

    def ensure(self, conf: Mapping[str, str]) -> None:
        """Ensure that the session has these settings, since a running session can't change them.

        Raises UsageError.
        """
        for name, value in conf.items():
            if self.conf(name) != value:
                raise UsageError(
                    f"--spark-conf {name} can't change the running session",
                    hint=f"Give it to spark-submit, as --conf {name}=….",
                )

    def conf(self, name: str, default: str = "") -> str:
        """Return a setting of Spark, or the default if it is not set or can't be known."""
        try:
            return str(self.spark.conf.get(name, default))
        except PySparkException:
            return default

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Give the session the settings that a drain needs, for as long as the block lasts."""
        with _CHANGING:
            users, before = _DRAINING.get(id(self.spark), (0, {}))
            for name, value in () if users else WHILE_DRAINING.items():
                # PySpark 3.5 raises an error of Java for a setting that it does not know.
                with suppress(PySparkException, Py4JError):
                    known = str(self.spark.conf.get(name))
                    self.spark.conf.set(name, value)
                    before[name] = known
            _DRAINING[id(self.spark)] = users + 1, before
        try:
            yield
        finally:
            self._restore_if_last()

    def _restore_if_last(self) -> None:
        """Restore the settings of the session if no other drain runs on it."""
        with _CHANGING:
            users, before = _DRAINING.pop(id(self.spark))
            if users > 1:
                _DRAINING[id(self.spark)] = users - 1, before
                return
            with suppress(Exception):  # Spark may be gone.
                for name, value in before.items():
                    self.spark.conf.unset(name)
                    if self.spark.conf.get(name) != value:
                        self.spark.conf.set(name, value)

    def name_jobs(self, name: str, *tags: str) -> None:
        """Set the name and the tags of the jobs that this thread starts from now on."""
        if self.is_remote:
            add = self.spark.addTag
        else:
            context = self.spark.sparkContext
            context.setJobDescription(name)
            context.setInterruptOnCancel(True)
            # spark.addTag would not do: only the thread that added such a tag can cancel by it.
            add = context.addJobTag
        for tag in tags:
            add(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs that have this tag. Spark kills their tasks."""
        if self.is_remote:
            self.spark.interruptTag(tag)
        else:
            self.spark.sparkContext.cancelJobsWithTag(tag)

    def placed(self, rows: DataFrame, tasks: int, column: str) -> DataFrame:
        """Return the rows in ``tasks`` partitions. ``column`` has the number of the partition."""
        if self.version >= (4, 1):
            return rows.repartitionById(tasks, column)
        # Spark's own hash tells which of these numbers it puts into which partition.
        hashed = f"transform(sequence(0, {KEYS_EACH * tasks}), key -> pmod(hash(key), {tasks}))"
        (found,) = self.spark.sql(f"SELECT {hashed}").collect()[0]
        key_of = {task: key for key, task in enumerate(found)}
        keys = ", ".join(str(key_of[task]) for task in range(tasks))
        keyed = rows.selectExpr("*", f"element_at(array({keys}), {column} + 1) AS key")
        return keyed.repartition(tasks, "key").drop("key")


READERS = 8  # One slot in eight reads ahead. If there are fewer, any slot that is free reads.
# Tasks wait HOPE_S for Spark to start another executor. If none comes, no task waits again until
# HOPE_AGAIN_S have passed.
HOPE_S, HOPE_AGAIN_S = 60.0, 600.0
GROW_TO = 64  # If no setting tells, a cluster is expected to have this many slots.


@dataclass(slots=True)
class Slots:
    """The number of slots that Spark has. The driver updates it now and then.

    Attributes:
        count: the number of tasks of any kind that can run at once.
        wanted: the maximum number of tasks that handle at once; None to use most of the slots.
        grows: whether Spark starts executors for tasks that wait.
        to_come: the number of slots that are expected in the end.
    """

    count: int
    wanted: int | None = None
    grows: bool = False
    to_come: int = 0
    # When tasks were first seen waiting for slots; None if none has waited since ``count`` changed.
    _since_s: float | None = None
    _hopes: bool = True  # Whether tasks may wait for another executor.

    @property
    def handling(self) -> int:
        """The number of tasks that may call the handler at once."""
        if self.wanted is None:
            return max(1, self.count - self.count // READERS)
        return max(1, min(self.wanted, self.count)) if self.grows else self.wanted

    @property
    def most(self) -> int:
        """The highest number of slots to expect."""
        return max(self.count, self.wanted or self.to_come)

    def look(self, count: int, busy: int, now_s: float) -> None:
        """Note the current number of slots, and how many tasks have a slot or wait for one."""
        if count != self.count:
            self.count, self._since_s, self._hopes = count, None, True
        elif busy > self.handling:
            self._since_s = now_s if self._since_s is None else self._since_s
            self._hopes = now_s - self._since_s <= HOPE_S
        elif self._since_s is not None and now_s - self._since_s > HOPE_AGAIN_S:
            self._since_s, self._hopes = None, True

    def room(self, busy: int) -> int:
        """Return the number of tasks that may begin in addition to the ``busy`` ones.

        One task may begin for each free slot. If Spark starts executors for tasks that wait, as
        many tasks may wait as there are slots, until ``HOPE_S`` have passed without an executor.
        """
        most = self.handling
        if self.grows and self._hopes:
            most = max(most, min(2 * self.count, self.wanted or sys.maxsize))
        return most - busy
