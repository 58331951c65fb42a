"""Spark as the engine of a drain, known without PySpark, so that a preview need not import it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from drainer.engine.preview import SPARK, ShownEngine
from drainer.errors import handling_nothing
from drainer.model.status import Summary
from drainer.operations.engine import LocalContext
from drainer.operations.start import Prepared
from drainer.spark.session.settings import (
    STARTING,
    STATE,
    SparkSettings,
    java_for_spark,
    shown_master,
    with_retries,
)
from drainer.spark.state.state import state_beside
from drainer.spark.task.chunk import why_whole
from drainer.store.place import PlanPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds that a session, its workers and the first wave take to start, measured on local[2].
START_S = 10.0


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark as the engine of a drain, which reads and handles in Spark's tasks.

    ``spark`` is a session that exists already; without one, the drain starts its own.
    """

    settings: SparkSettings
    spark: SparkSession | None = None
    start_s = START_S

    @property
    def session_s(self) -> float:
        """Seconds for which the lock keeps other drains out after this process falls silent."""
        return self.settings.lease.session_s

    def __call__(self, context: LocalContext) -> Summary:
        """Drain on Spark until the drain ends. Raises Refused when Spark can't be started."""
        with handling_nothing(STARTING):
            # The driver imports PySpark, which takes half a second.
            from drainer.spark.driver import run_on_spark  # noqa: PLC0415

        return run_on_spark(context, self.settings, self.spark)


def spark_settings(
    plan: PlanPlace | None, master: str | None, conf: Mapping[str, str]
) -> SparkSettings:
    """Return the settings of a drain on Spark whose plan is at this place, as they were typed.

    If the plan is at a URI, all machines reach it, so the state is put beside it unless ``conf``
    names another place. Raises UsageError.
    """
    if isinstance(plan, str):
        conf = {STATE: state_beside(plan), **conf}
    return SparkSettings.of(master, conf)


def on_spark(
    prepared: Prepared, settings: SparkSettings, session: SparkSession | None = None
) -> Prepared:
    """Return what was prepared, to run on Spark: on the given session, or on one of its own.

    Raises Refused when there is no Java for Spark; ExtraMissing when PySpark is not installed.
    """
    if not settings.is_remote:
        java_for_spark()
    master = settings.master if session is not None else with_retries(settings.master)
    state, typed = _state(settings, prepared.action.plan_path), settings.shown_conf()
    typed.pop(STATE, None)
    settings = replace(settings, master=master, conf={**settings.conf, STATE: state})
    whole = why_whole(prepared.handler, prepared.plan.terms)
    shown = {
        "state": state,
        "messages": f"shuffled whole, to each task that has a part: {whole}" if whole else "",
        "spark conf": ", ".join(f"{name}={value}" for name, value in typed.items()),
    }
    engine = ShownEngine(
        SPARK,
        f"Spark on {shown_master(settings.master)}",
        {name: text for name, text in shown.items() if text},
    )
    action = replace(prepared.action, engine=engine)
    return replace(prepared, action=action, engine=SparkEngine(settings, session))


def _state(settings: SparkSettings, plan: PlanPlace) -> str:
    """Return the place of the state, by a path that holds in every working folder."""
    if settings.state is None:
        return state_beside(plan)
    return settings.state if "://" in settings.state else str(Path(settings.state).absolute())
