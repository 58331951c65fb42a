"""One Spark session for all tests that need one, since it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.kafka.settings import ClientSettings
from drainer.spark import spark_session
from drainer.spark.session.session import Session
from drainer.spark.session.start import LOCAL_CONF, LOCAL_JAVA
from kafka.topic import eventually
from scenarios.connect_server import ConnectServer
from spark.connect import ON
from spark.story import Story


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the event logs, which Spark's UI and its history server show."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a python3 that can't run."""
    folder = tmp_path_factory.mktemp("other")
    python = folder / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def spark(kafka_installed: None, events: Path, other_python: Path) -> Iterator[SparkSession]:
    with ExitStack() as opened:
        if ON == "connect":
            folder = events.with_name("server")
            folder.mkdir()
            server = opened.enter_context(ConnectServer(folder, conf=_logged(events)))
            session = SparkSession.builder.remote(server.url).getOrCreate()
        else:
            # This is so when drainer is called by its path, from an environment that is not active.
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("PATH", str(other_python), prepend=os.pathsep)
                session = _session(events)
        opened.callback(session.stop)
        if find_spec("pyspark.sql.datasource"):  # It came with PySpark 4.0.
            from drainer.spark import register  # noqa: PLC0415

            register(session)
        yield session


def _logged(events: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }


def _session(events: Path) -> SparkSession:
    return spark_session(
        ON,
        "tests",
        {
            **LOCAL_CONF,
            "spark.ui.enabled": "false",
            # Compiling code for the queries of these tests takes longer than it saves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            **_logged(events),
            "spark.local.dir": str(events.with_name("blocks")),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        },
        java=LOCAL_JAVA,
    )


@pytest.fixture
def story(spark: SparkSession, bootstrap: str, topic_name: str, tmp_path: Path) -> Story:
    return Story(ClientSettings(bootstrap), topic_name, tmp_path, spark=spark)


@pytest.fixture
def ensure_let_go(spark: SparkSession) -> Callable[[], None]:
    """A function that waits until Spark has removed all slices and shuffle files of this test.

    Before PySpark 4.1, it keeps them until Java collects garbage (docs/howto/spark.md).
    """
    if Session(spark).version < (4, 1):
        return lambda: None
    folder = Path(str(spark.conf.get("spark.local.dir")))

    def files() -> set[str]:
        names = (path.name for path in folder.rglob("*"))
        return {name for name in names if name.startswith(("shuffle_", "rdd_"))}

    before = files()
    return lambda: eventually(lambda: not files() - before, f"no slice is kept in {folder}", 30)
