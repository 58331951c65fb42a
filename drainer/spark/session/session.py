"""A session of Spark, classic or of Spark Connect, as a drain uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as columns

from drainer.errors import Refused, UsageError
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.settings import BATCH_BYTES, BATCH_ROWS, REMOTE, check_conf

# The settings that the queries of a drain need.
OF_A_DRAIN = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.connect.shuffleDependency.fileCleanup.enabled": "true",
    # If a span is read again, its chunks may end at other messages, which Spark's checksum would
    # take for another result. drainer has a checksum that does not depend on chunks.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
SLOTS_S, SERVER_SLOTS_S = 1.0, 15.0
KEYS_EACH = 32  # Among this many numbers per partition, some are surely hashed to each of them.
_SPLITS = re.compile(r"splits=(\d+)")


class Session:
    """A session that a drain runs on. ``spark`` is Spark's own object.

    ``is_own`` is whether drainer has opened it, so that nobody else uses it.
    """

    def __init__(self, spark: SparkSession, *, is_own: bool = False) -> None:
        self.spark = spark
        self.is_own = is_own
        self.is_remote = not isinstance(spark, SparkSession)
        major, minor = re.findall(r"\d+", spark.version)[:2]
        self.version = int(major), int(minor)

    @classmethod
    def of(cls, spark: SparkSession, *, is_own: bool = False) -> Session:
        """Return the session of a program that calls a drain, or one that ``is_own``.

        Raises Refused if the session has stopped; UsageError if a drain can't work with one of its
        settings.
        """
        session = cls(spark, is_own=is_own)
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

    @property
    def owner(self) -> Any:
        """What files are sent to: the application, or a session on a server."""
        return self.spark if self.is_remote else self.spark.sparkContext

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
    def draining(self) -> Iterator[Session]:
        """Open a session beside this one, with the settings that a drain needs, for the block.

        A session that is ``is_own`` gets the settings itself. So does one on a server, for as long
        as the block lasts, with a PySpark that can't clone it. A new one there would lack the files
        that were sent to this one.
        """
        apart = not self.is_own and (not self.is_remote or hasattr(self.spark, "cloneSession"))
        session = self
        if apart:
            spark: Any = self.spark
            session = Session(spark.cloneSession() if self.is_remote else spark.newSession())
        before = {}
        for name, value in OF_A_DRAIN.items():
            # PySpark 3.5 raises an error of Java for a setting that it does not know.
            with suppress(PySparkException, Py4JError):
                before[name] = str(session.spark.conf.get(name))
                session.spark.conf.set(name, value)
        try:
            yield session
        finally:
            with suppress(Exception):  # Spark may be gone.
                for name, value in before.items() if not apart else ():
                    session.spark.conf.set(name, value)
                if apart and self.is_remote:
                    session.spark.stop()

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

    def placed(self, rows: DataFrame, tasks: int, place: Column) -> DataFrame:
        """Return the rows in ``tasks`` partitions. ``place`` is the number of the partition."""
        if self.version >= (4, 1):
            return rows.repartitionById(tasks, place)
        # Spark's own hash tells which of these numbers it puts into which partition.
        hashed = f"transform(sequence(0, {KEYS_EACH * tasks}), key -> pmod(hash(key), {tasks}))"
        name = "drainer_placed"  # No table has a column of this name.
        key = columns.expr(f"int(array_position((SELECT {hashed}), {name}) - 1)")
        keyed = rows.withColumn(name, place.cast("int")).withColumn(name, key)
        return keyed.repartition(tasks, name).drop(name)


# Tasks wait HOPE_S for Spark to start another executor. If none comes, no task waits again until
# HOPE_AGAIN_S have passed.
HOPE_S, HOPE_AGAIN_S = 60.0, 600.0


@dataclass(slots=True)
class Slots:
    """The number of slots that Spark has. The driver updates it now and then.

    Attributes:
        count: the number of tasks of any kind that can run at once.
        wanted: the maximum number of tasks that handle at once; None to use all slots.
        grows: whether Spark starts executors for tasks that wait.
    """

    count: int
    wanted: int | None = None
    grows: bool = False
    # When tasks were first seen waiting for slots; None if none has waited since ``count`` changed.
    _since_s: float | None = None
    _hopes: bool = True  # Whether tasks may wait for another executor.

    @property
    def handling(self) -> int:
        """The number of tasks that handle the next slice.

        If Spark starts executors for tasks that wait, there are twice as many as slots, until
        ``HOPE_S`` have passed without another executor.
        """
        if self.wanted is not None and not self.grows:
            return self.wanted
        most = 2 * self.count if self.grows and self._hopes else self.count
        return max(1, min(most, self.wanted or most))

    def look(self, count: int, busy: int, now_s: float) -> None:
        """Note the current number of slots, and how many tasks have a slot or wait for one."""
        if count != self.count:
            self.count, self._since_s, self._hopes = count, None, True
        elif busy > count:
            self._since_s = now_s if self._since_s is None else self._since_s
            self._hopes = now_s - self._since_s <= HOPE_S
        elif self._since_s is not None and now_s - self._since_s > HOPE_AGAIN_S:
            self._since_s, self._hopes = None, True
