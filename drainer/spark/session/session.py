"""A session of Spark, classic or of Spark Connect, as a drain uses it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.settings import BATCH_BYTES, BATCH_ROWS, REMOTE, check_conf

# Of a session while a drain runs on it. With adaptive execution each stage would be a job of its
# own, and what is begun behind a job come before its last stage.
WHILE_DRAINING = {
    "spark.sql.adaptive.enabled": "false",
    # Rows are few, of 64 KiB each: to compile code for them takes more than it gains.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.connect.shuffleDependency.fileCleanup.enabled": "true",
    # What is read again may be cut into other chunks; drainer's own checksum is not of bytes.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
SLOTS_S, SERVER_SLOTS_S = 1.0, 15.0  # between two checks of how many slots there are
_CHANGING = threading.Lock()  # of the settings of sessions
# By session how many drains run on it, and what was set before the first.
_DRAINING: dict[int, tuple[int, dict[str, str]]] = {}
_SPLITS = re.compile(r"splits=(\d+)")


class Session:
    """A session that a drain runs on. ``spark`` is Spark's own."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.is_remote = not isinstance(spark, SparkSession)
        major, minor = re.findall(r"\d+", spark.version)[:2]
        self.version = int(major), int(minor)

    @classmethod
    def of(cls, spark: SparkSession) -> Session:
        """The session of whoever calls a drain.

        Raises Refused when it has stopped; UsageError when a setting of it breaks a law.
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
        """Address of its web page; None when it has none, or it can't be known."""
        return None if self.is_remote else self.spark.sparkContext.uiWebUrl

    @property
    def master(self) -> str:
        """Master; of a server of Spark Connect no more than that it is one."""
        return REMOTE if self.is_remote else self.conf("spark.master")

    def add_file(self, path: str) -> None:
        """Send a file along, for ``SparkFiles.get`` in a task."""
        if self.is_remote:
            self.spark.addArtifacts(path, file=True)
        else:
            self.spark.sparkContext.addFile(path)

    def add_module(self, path: str) -> None:
        """Send code along: a module, or an archive of them."""
        if self.is_remote:
            self.spark.addArtifacts(path, pyfile=True)
        else:
            self.spark.sparkContext.addPyFile(path)

    @property
    def slots_s(self) -> float:
        """Seconds between two questions for the slots: a server answers by a query, which its SQL
        tab lists."""
        return SERVER_SLOTS_S if self.is_remote else SLOTS_S

    def slots(self) -> int:
        """Number of tasks that can run at once on the present executors."""
        if not self.is_remote:
            cores = self.spark.sparkContext.defaultParallelism
        else:
            (row,) = self.spark.sql("EXPLAIN SELECT id FROM range(1)").collect()
            found = _SPLITS.search(row[0])
            cores = int(found[1]) if found else 1
        return max(1, cores // int(self.conf("spark.task.cpus", "1")))

    def ensure(self, conf: Mapping[str, str]) -> None:
        """Raises UsageError when a setting is not as it should be: a session keeps what it has."""
        for name, value in conf.items():
            if self.conf(name) != value:
                raise UsageError(
                    f"--spark-conf {name} can't change the session that runs",
                    hint=f"Give it to spark-submit, as --conf {name}=….",
                )

    def conf(self, name: str, default: str = "") -> str:
        """Return a setting of Spark's; the default where it is not set, or can't be known."""
        try:
            return str(self.spark.conf.get(name, default))
        except PySparkException:
            return default

    @contextmanager
    def draining(self) -> Iterator[None]:
        """The settings that a drain needs, for as long as the block lasts."""
        with _CHANGING:
            users, before = _DRAINING.get(id(self.spark), (0, {}))
            for name, value in () if users else WHILE_DRAINING.items():
                # PySpark 3.5 raises what is of Java when it has no such setting.
                with suppress(PySparkException, Py4JError):
                    known = str(self.spark.conf.get(name))
                    self.spark.conf.set(name, value)
                    before[name] = known
            _DRAINING[id(self.spark)] = users + 1, before
        try:
            yield
        finally:
            self._drained()

    def _drained(self) -> None:
        """Restores the settings when this was the last drain on the session."""
        with _CHANGING:
            users, before = _DRAINING.pop(id(self.spark))
            if users > 1:
                _DRAINING[id(self.spark)] = users - 1, before
                return
            with suppress(Exception):  # Spark may be gone
                for name, value in before.items():
                    self.spark.conf.unset(name)
                    if self.spark.conf.get(name) != value:
                        self.spark.conf.set(name, value)

    def name_jobs(self, name: str, *tags: str) -> None:
        """Give what this thread runs from now on this name, and these tags."""
        if self.is_remote:
            add = self.spark.addTag
        else:
            context = self.spark.sparkContext
            context.setJobDescription(name)
            context.setInterruptOnCancel(True)
            add = context.addJobTag  # those of a session are known to their thread alone
        for tag in tags:
            add(tag)

    def cancel(self, tag: str) -> None:
        """End the jobs that have this tag; their tasks are killed."""
        if self.is_remote:
            self.spark.interruptTag(tag)
        else:
            self.spark.sparkContext.cancelJobsWithTag(tag)

    def placed(self, rows: DataFrame, tasks: int, column: str) -> DataFrame:
        """The rows in so many partitions, each row in the one whose number is in the column."""
        if self.version >= (4, 1):
            return rows.repartitionById(tasks, column)
        keys = ", ".join(map(str, _keys_of(tasks)))
        keyed = rows.selectExpr("*", f"element_at(array({keys}), {column} + 1) AS key")
        return keyed.repartition(tasks, "key").drop("key")


def _keys_of(tasks: int) -> list[int]:
    """Return numbers of which Spark's hash partitioning puts one into each partition, in order."""
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(_murmur3(key) % tasks, key)
        if len(keys) == tasks:
            break
    return [keys[task] for task in range(tasks)]


def _murmur3(number: int) -> int:
    """Spark's ``hash`` of an int (MurmurHash3 x86 32, Appleby)."""
    mask = 2**32 - 1
    k = number * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) * 0x1B873593 & mask
    h = 42 ^ k
    h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h
