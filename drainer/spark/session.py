"""Spark sessions as drainer needs them: the settings that its laws depend on, and no others."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from drainer.errors import Refused, SandboxRefused, UsageError
from drainer.sandbox.java import find_java

LOCAL = "local[2]"

# Why a session of drainer's can't be without them.
_LAWS = {
    "spark.speculation": ("false", "a second copy of a task would handle everything twice"),
    "spark.sql.adaptive.skewJoin.enabled": ("false", "it would cut a lane in two"),
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": (
        "false",
        "it would cut a lane in two",
    ),
}


def spark_session(
    master: str = LOCAL, name: str = "drainer", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on a master, with the settings that drainer depends on; stop it when done.

    Workers run the Python that this runs in, unless ``spark.pyspark.python`` names another: on a
    cluster that is the one of the environment that is sent along.

    Raises:
        UsageError: when ``conf``, or a session that runs already, has what drainer depends on set
            to something else.
        Refused: when there is no Java for it.
    """
    chosen = dict(conf or {})
    check_conf(chosen)
    try:
        find_java()
    except SandboxRefused as error:
        raise Refused(str(error).replace("the sandbox", "Spark"), hint=error.hint) from None
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",  # the terminal is drainer's
        "spark.log.level": "ERROR",
        **{key: value for key, (value, _) in _LAWS.items()},
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


def check_conf(conf: Mapping[str, str]) -> None:
    """Make sure that settings of Spark leave drainer's laws whole.

    Raises:
        UsageError: when one does not; its text says why.
    """
    for key, (value, reason) in _LAWS.items():
        if conf.get(key, value).strip().lower() != value:
            raise UsageError(f"{key}={conf[key]} is not possible: {reason}", hint="leave it out")
