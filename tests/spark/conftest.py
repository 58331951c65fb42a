"""One Spark session for all that needs one: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.spark import register, spark_session


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes what its UI and its history server show."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(kafka_installed: None, events: Path) -> Iterator[SparkSession]:
    session = spark_session(
        "local[2,2]",  # a task that failed is tried once more
        "tests",
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    register(session)
    yield session
    session.stop()
