"""The archive of the classes that Spark loads: Java's class data sharing.

A JVM that finds the archive starts a local session with two seconds less of processor time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import TimeoutExpired
from zlib import crc32

import pyarrow as pa
import pyspark
from platformdirs import user_cache_path
from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as columns

from drainer.errors import Refused, raised_as
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.session import Session
from drainer.spark.session.settings import java_for_spark

# Without a word, Java ignores an archive that another Java wrote, or one of other jars.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
WRITE_S = 120.0  # Java has this long to write the archive.


def archive_place() -> Path:
    """Return the place of the archive for the Java and the PySpark of this process.

    Raises as ``java_for_spark`` does.
    """
    java = java_for_spark().resolve()
    version = crc32(f"{java} {java.stat().st_mtime_ns}".encode())
    return user_cache_path("drainer") / f"spark-{pyspark.__version__}-{version:08x}.jsa"


def options_to_use() -> str:
    """Return Java's options to use the archive, or no options if there is none."""
    place = archive_place()
    return f' "-XX:SharedArchiveFile={place}" {_SILENT}' if place.exists() else ""


def options_to_write(file: Path) -> str:
    """Return Java's options to write an archive to ``file`` when the JVM ends."""
    return f' "-XX:ArchiveClassesAtExit={file}" {_SILENT}'


def begin_archive() -> Path:
    """Return a place beside that of the archive, where Java may write one. Raises Refused."""
    place = archive_place()
    with raised_as(Refused, OSError, about=f"can't write the archive {place}: "):
        place.parent.mkdir(parents=True, exist_ok=True)
    return place.with_suffix(f".{os.getpid()}")


def finish_archive(file: Path, spark: SparkSession, gateway: JavaGateway) -> Path:
    """Run the steps of a drain on Spark, stop it, and return the archive that its JVM writes then.

    ``file`` is the place that ``options_to_write`` named to the JVM. Raises DrainerError.
    """
    with spark_failures():
        rows = spark.range(0, 2, 1, 1).selectExpr("int(id) AS task", "id AS offset")
        placed = Session(spark).placed(rows.mapInArrow(_same, rows.schema), 2, columns.col("task"))
        placed.sortWithinPartitions("offset").mapInArrow(_same, rows.schema).collect()
        spark.stop()
    gateway.proc.stdin.close()  # The JVM ends with its standard input.
    with raised_as(Refused, OSError, TimeoutExpired, about="Java wrote no archive: "):
        gateway.proc.wait(WRITE_S)
        return file.rename(archive_place())


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
