"""The options that say what ``run`` and ``resume`` run on: this process, or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from drainer.cli.values import parse_size
from drainer.errors import UsageError
from drainer.insight.engine_choice import EngineName, EngineRequest
from drainer.spark.settings import EVERY_CORE, SparkLook, SparkSettings, java_for_spark

_WHERE = "What it runs on"
_MASTER_VARIABLE = "DRAINER_SPARK_MASTER"
_OF_SPARK = {
    "master": "--master",
    "spark_conf": "--spark-conf",
    "wave": "--wave",
    "state": "--state",
    "tasks": "--tasks",
    "archive": "--archive",
}

EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        envvar="DRAINER_ENGINE",
        help="This process, or Spark for what is too much for one. auto takes Spark when a master"
        " is named, or when an estimate (by run's --latency, or by what the plan of a resume has"
        " measured) says that this process is the limit; the preview says which and why.",
        rich_help_panel=_WHERE,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar=_MASTER_VARIABLE,
        metavar="URL",
        help="Spark's master: local[*], spark://HOST:PORT, yarn, k8s://https://HOST:PORT. Default"
        " for Spark: local[*], all cores of this machine.",
        rich_help_panel=_WHERE,
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        envvar="DRAINER_SPARK_CONF",
        metavar="NAME=VALUE",
        help="A setting of Spark's; repeat for several. What would break order, or handle twice, is"
        " refused. Others on this machine can see it in the process list: keep secrets in files.",
        rich_help_panel=_WHERE,
    ),
]
Wave = Annotated[
    str,
    typer.Option(
        "--wave",
        envvar="DRAINER_WAVE",
        metavar="SIZE",
        help="How much of the backlog Spark reads, shuffles and handles at once. A larger one has"
        " more sub-keys to work on, and takes more room on the executors.",
        rich_help_panel=_WHERE,
    ),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        envvar="DRAINER_STATE",
        metavar="URI",
        help="Where Spark's tasks put what they finished, every 50 ms (1 s on object stores): a"
        " folder, or s3://, gs://, hdfs://. This machine and all executors have to reach it."
        " Default on this machine: PLAN.state beside the plan.",
        rich_help_panel=_WHERE,
    ),
]
Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        envvar="DRAINER_TASKS",
        metavar="N",
        help="How many of Spark's tasks handle at once; they share --concurrency and --rate."
        " Default: one a core.",
        rich_help_panel=_WHERE,
    ),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        "--archive",
        envvar="DRAINER_ARCHIVE",
        metavar="PATH",
        help="A .zip, .whl, .egg or .py that Spark's executors need to import the handler; repeat"
        " for several.",
        rich_help_panel=_WHERE,
    ),
]


def engine_request(
    context: typer.Context,
    engine: EngineName,
    *,
    master: str | None,
    spark_conf: Sequence[str] | None,
    wave: str,
    state: str | None,
    tasks: int | None,
    archive: Sequence[str] | None,
) -> EngineRequest:
    """The engine that is asked for, as it was typed.

    With ``--engine process`` what variables and a profile say of Spark is let alone. Raises
    UsageError.
    """
    if engine is EngineName.PROCESS:
        for option in _typed(context):
            raise UsageError(
                f"{option} is for Spark, and --engine process says otherwise",
                hint="leave one of them out",
            )
        return EngineRequest(engine)
    spark = SparkSettings(
        master=master_of(master),
        conf=spark_pairs(spark_conf or ()),
        wave_bytes=parse_size(wave),
        state=state,
        tasks=tasks,
        archives=tuple(archive or ()),
    )
    return EngineRequest(engine, spark, None if master is None else _named_by(context))


def spark_look(
    context: typer.Context,
    engine: EngineName,
    *,
    full: bool,
    master: str | None,
    spark_conf: Sequence[str] | None,
    tasks: int | None,
) -> SparkLook | None:
    """Where on Spark a backlog is to be inspected; None for this process.

    What variables and a profile say of Spark counts for ``--full`` alone. Raises UsageError, and
    Refused when there is no Java.
    """
    wanted = engine is EngineName.SPARK or (engine is EngineName.AUTO and master is not None)
    typed = _typed(context)
    if engine is EngineName.SPARK and _source(context, "engine") == "COMMANDLINE":
        typed = ["--engine spark", *typed]
    if not full and typed:
        raise UsageError(f"{typed[0]}: on Spark all of the backlog is read", hint="add --full")
    if not wanted and typed:
        raise UsageError(
            f"{typed[0]} is for Spark, and this process reads",
            hint="add --engine spark, or leave it out",
        )
    if not full or not wanted:
        return None
    look = SparkLook(master_of(master), spark_pairs(spark_conf or ()), tasks)
    java_for_spark()
    return look


def _typed(context: typer.Context) -> list[str]:
    """The options of Spark's that were typed."""
    return [option for name, option in _OF_SPARK.items() if _source(context, name) == "COMMANDLINE"]


def _named_by(context: typer.Context) -> str:
    match _source(context, "master"):
        case "ENVIRONMENT":
            return _MASTER_VARIABLE
        case "DEFAULT_MAP":
            return "the profile"
        case _:
            return "--master"


def _source(context: typer.Context, name: str) -> str | None:
    source = context.get_parameter_source(name)
    return None if source is None else source.name


def master_of(said: str | None) -> str:
    return EVERY_CORE if said is None else said.strip()


def spark_pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The text is not shown: it may have a secret in it.
            raise UsageError(
                "--spark-conf: this is no NAME=VALUE", hint="as in spark.executor.memory=4g"
            )
        pairs[name.strip()] = value.strip()
    return pairs
