"""A drain that is to run on Spark: with which settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.engine.preview import SPARK, EngineChoice
from drainer.operations.start import Prepared
from drainer.spark.session.settings import (
    SparkEngine,
    SparkSettings,
    java_for_spark,
    master_of,
    shown_master,
    with_retries,
)
from drainer.spark.session.slots import READERS
from drainer.spark.state.state import state_beside
from drainer.spark.task.chunk import why_whole
from drainer.store.place import PlanPlace
from drainer.view import figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_settings(
    plan: PlanPlace | None,
    *,
    master: str | None,
    remote: str | None = None,
    state: str | None,
    **others: Any,
) -> SparkSettings:
    """Return the settings of Spark for a drain; ``others`` are further fields.

    If all machines reach the plan, because it is at a URI, the state is put beside it by default.
    Raises UsageError.
    """
    state = state or (state_beside(plan) if isinstance(plan, str) else None)
    return SparkSettings(master_of(master, remote), state=state, **others)


def resolve_on_spark(
    prepared: Prepared,
    spark: SparkSettings,
    *,
    by_master: bool = False,
    session: SparkSession | None = None,
) -> Prepared:
    """Return what was prepared, to run on Spark.

    ``by_master`` is set when only a master was named. A drain on a ``session`` that is there
    starts none. Raises Refused without Java.
    """
    why = "a master is named" if by_master else "set by --engine"
    why = "as in the session" if session is not None else why
    if not spark.is_remote:
        java_for_spark()
    master = spark.master if session is not None else with_retries(spark.master)
    spark = replace(spark, master=master, state=_state(spark, prepared.action.plan_path))
    whole = why_whole(prepared.handler, prepared.plan.terms)
    engine = EngineChoice(
        SPARK, why, f"Spark on {shown_master(spark.master)}", _in_words(spark, whole)
    )
    action = replace(prepared.action, engine=engine)
    return replace(prepared, action=action, engine=SparkEngine(spark, session))


def _in_words(spark: SparkSettings, whole: str | None) -> dict[str, str]:
    """Settings that a person may want to change, by name."""
    few = spark.is_local and (spark.cores or 0) < READERS
    tasks = "one task per core" if few else "tasks on 7 of 8 cores"
    if spark.tasks is not None:
        tasks = f"{spark.tasks:,} tasks at once"
    found = {
        "waves": f"{figures.size(spark.wave_bytes)} each, handled by {tasks}",
        "state": spark.state or "",
        "messages": f"shuffled whole, to each task that has a part: {whole}" if whole else "",
        "archives": ", ".join(spark.archives),
        "spark conf": ", ".join(f"{name}={value}" for name, value in spark.shown_conf().items()),
    }
    return {name: text for name, text in found.items() if text}


def _state(spark: SparkSettings, plan: PlanPlace) -> str:
    if spark.state is None:
        return state_beside(plan)
    return spark.state if "://" in spark.state else str(Path(spark.state).absolute())
