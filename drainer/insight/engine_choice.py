"""Which engine a drain runs on: this process, or Spark; and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from drainer.cli.engines import NO_MASTER, Engines
from drainer.core.order import Order
from drainer.core.plan import OffsetPlan
from drainer.engine.preview import PROCESS, SPARK, EngineChoice, EngineName
from drainer.engine.settings import LocalSettings
from drainer.errors import Refused
from drainer.insight.forecast.forecast import CPU, NOTHING, SPLIT, Forecast
from drainer.operations.engine import IN_PROCESS
from drainer.operations.start import Prepared
from drainer.policy.concurrency import Concurrency
from drainer.spark.settings import EVERY_CORE, OnSpark, SparkSettings, java_for_spark
from drainer.spark.state import state_beside
from drainer.wings import Extra, insist_on

# What Spark has to save: its start and its waves cost some seconds, and it is more to look after.
WORTH_S, WORTH_TIMES = 60.0, 1.2
# How much of a core is left for what a process does alone: the shuffle takes the rest.
OF_A_CORE = 0.4


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The engine that is asked for.

    ``spark`` is how it would run there, and ``has_master`` whether its master is named.
    """

    name: EngineName = EngineName.AUTO
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(EVERY_CORE))
    has_master: bool = False

    @property
    def is_open(self) -> bool:
        """Whether an estimate decides."""
        return self.name is EngineName.AUTO and not self.has_master


def ask_for_engine(said: Engines) -> EngineRequest:
    """The engine that is asked for, as it was typed.

    Raises UsageError; ExtraMissing when it is Spark, and PySpark is not installed.
    """
    if said.engine is EngineName.SPARK or said.master is not None:
        insist_on(Extra.SPARK, "Spark")
    spark = SparkSettings(
        master=EVERY_CORE if said.master is None else said.master.strip(),
        conf=said.spark_conf,
        wave_bytes=said.wave_bytes,
        state=said.state,
        tasks=said.tasks,
        archives=said.archives,
    )
    return EngineRequest(said.engine, spark, said.master is not None)


def settle_engine(
    prepared: Prepared,
    asked: EngineRequest | None,
    running: LocalSettings,
    look: Callable[[], Forecast | str] | None = None,
) -> Prepared:
    """What was prepared, with the engine that it will run on; nothing ``asked`` leaves it open.

    ``look`` is called when an estimate decides; it may say instead why there is none.

    Raises Refused when Spark is asked for, and this drain can't run there or there is no Java.
    """
    asked = asked or EngineRequest()
    engine = choose_engine(asked, unsuited(prepared.plan, running), look or (lambda: ""))
    if not engine.is_spark:
        action = replace(prepared.action, engine=engine)
        return replace(prepared, action=action, engine=IN_PROCESS)
    spark = replace(asked.spark, state=_state(asked.spark, prepared.action.plan_path))
    engine = replace(
        engine,
        master=spark.master,
        tasks=spark.tasks,
        wave_bytes=spark.wave_bytes,
        state=spark.state,
        conf=spark.shown_conf(),
        archives=spark.archives,
    )
    action = replace(prepared.action, engine=engine)
    return replace(prepared, action=action, engine=OnSpark(spark))


def choose_engine(
    asked: EngineRequest, barred: Refused | None, look: Callable[[], Forecast | str]
) -> EngineChoice:
    """The engine and why; what is said of Spark's settings is not in it yet.

    ``barred`` is why it can't be Spark. Raises Refused when it has to be.
    """
    if asked.is_open:
        looked = look() if barred is None else ""
        if isinstance(looked, str):
            return EngineChoice(PROCESS, looked or NO_MASTER)
        return _by_estimate(looked)
    by_master = asked.name is EngineName.AUTO
    why = "a master is named" if by_master else "as --engine says"
    if asked.name is EngineName.PROCESS:
        return EngineChoice(PROCESS, why)
    if barred is not None:
        if not by_master:
            raise barred
        return EngineChoice(PROCESS, f"{why}, but {barred}")
    java_for_spark()
    return EngineChoice(SPARK, why)


def unsuited(plan: OffsetPlan, running: LocalSettings) -> Refused | None:
    """Why a drain can't run on Spark; None when it can."""
    if plan.redrive is not None:
        return Refused(
            "dead letters are redriven by one process: what is meant of them, and what was left"
            " alone, is in the account of that one",
            hint="leave --engine out, or say --engine process",
        )
    if Concurrency.of(running.concurrency).is_auto:
        return Refused(
            "--concurrency auto finds the number for one process: tasks that searched side by side"
            " would take each other's load for the downstream's",
            hint="say how many at once, in all tasks together: --concurrency 500",
        )
    if plan.rules.limit_per_key is not None and Order(plan.order) is not Order.SUB_KEY:
        return Refused(
            f"--limit-per-key with --order {plan.order}: several tasks of Spark's would have one"
            " sub-key, and each would count for itself",
            hint="leave --engine out, or say --engine process; the order of sub-keys can be limited"
            " on Spark",
        )
    return None


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_spark_s(found: Forecast, of_cores: int) -> float:
    """About how long it would take on so many cores, for a backlog that takes ``found`` in one
    process: the process's work is shared out, and splitting is done twice."""
    work_s = found.bounds.get(CPU, 0.0) + found.bounds.get(SPLIT, 0.0)
    others = [seconds for name, seconds in found.bounds.items() if name not in (CPU, SPLIT)]
    return max([work_s / (OF_A_CORE * of_cores), *others])


def _by_estimate(found: Forecast) -> EngineChoice:
    name, finding = _finding(found)
    if found.bound in (CPU, SPLIT):
        what = f"this process is the limit: {_time(found.seconds)}{finding}"
    elif found.bound == NOTHING:
        what = "there is nothing to handle"
    else:
        what = f"{found.bound} is the limit, and not this process"
    return EngineChoice(name, f"an estimate says that {what}")


def _finding(found: Forecast) -> tuple[str, str]:
    available = cores()
    if found.bound not in (CPU, SPLIT):
        return PROCESS, ""
    if available < 2:
        return PROCESS, ", and Spark would have no other core here"
    spark_s = on_spark_s(found, available)
    against = f", and about {_time(spark_s)} with Spark on {available} cores"
    if found.seconds - spark_s < WORTH_S or found.seconds < WORTH_TIMES * spark_s:
        return PROCESS, f"{against}, which is not worth it"
    try:
        java_for_spark()
    except Refused as error:
        return PROCESS, f"{against}, but {error}"
    return SPARK, against


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s" if minutes else f"{rest} s"


def _state(spark: SparkSettings, plan: Path) -> str:
    if spark.state is None:
        return state_beside(plan)
    return spark.state if "://" in spark.state else str(Path(spark.state).absolute())
