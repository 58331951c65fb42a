"""Spark sessions as drainer needs them: the settings that its laws depend on, and no others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from drainer.spark.settings import LAWS, check_conf, java_for_spark

LOCAL = "local[2]"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def spark_session(
    master: str = LOCAL,
    name: str = "drainer",
    conf: Mapping[str, str] | None = None,
    *,
    log: str = "error",
) -> SparkSession:
    """A session on a master, with the settings that drainer depends on; stop it when done.

    Workers run the Python that this runs in, unless ``spark.pyspark.python`` names another: on a
    cluster that is the one of the environment that is sent along. ``log`` is from which level on
    Spark writes to stderr (``off`` for nothing).

    Raises:
        UsageError: when ``conf``, or a session that runs already, has what drainer depends on set
            to something else.
        Refused: when there is no Java for it.
    """
    chosen = dict(conf or {})
    check_conf(chosen)
    java_for_spark()
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",  # the terminal is drainer's
        # Not by spark.log.level, which is told on stderr, after what comes before it.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        f" -Ddrainer.spark.log={log}",
        **{key: value for key, (value, _) in LAWS.items()},
    }
    if master.startswith("local"):  # nobody else has to reach the driver
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**settings, **chosen}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # One that was there before keeps what its context was begun with.
    check_conf(dict(session.sparkContext.getConf().getAll()))
    return session
