"""Options of the engine of a drain: this process, or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.cli.declared import declared_by, value_of
from drainer.engine.preview import EngineName, ShownEngine
from drainer.errors import UsageError
from drainer.loading.extensions import Extension
from drainer.model.option import PAIRS, option
from drainer.store.place import PlanPlace

if TYPE_CHECKING:
    from drainer.operations.start import Prepared

# Of drainer's own settings in --spark-conf, this is the only one that the core reads.
STATE = "drainer.state"

_spark = partial(option, panel="Spark", resumes=True)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that drains, and the settings of Spark."""

    engine: EngineName | None = _spark(
        "Engine that drains.", None, unset="spark with --master, else process"
    )
    master: str | None = _spark(
        "Spark master, such as local[4] or spark://HOST:PORT, or sc://HOST:PORT of Spark Connect.",
        None,
        unset="local[*]",
        envvar="DRAINER_SPARK_MASTER",
        metavar="URL",
    )
    spark_conf: Mapping[str, str] = _spark(
        "Setting of Spark, or drainer.NAME; repeatable. Other users can see it: give no secrets.",
        {},
        PAIRS,
        pairs=True,
    )

    @property
    def is_spark(self) -> bool:
        """Whether the drain runs on Spark.

        ``--engine`` decides, because a variable or a profile may have named the master.
        """
        return self.engine is EngineName.SPARK or (self.engine is None and self.master is not None)

    @property
    def state(self) -> str | None:
        """The folder or URI where tasks record what is done; None if nobody named one."""
        return self.spark_conf.get(STATE)

    def ensure_used(self, context: Any) -> None:
        """Raise UsageError if a person typed ``--engine process`` and an option of Spark.

        Variables and profiles may have such options, and ``--engine process`` then ignores them.
        """
        typed = {
            option.field
            for option in declared_by(context.command).values()
            if value_of(context, option)[0] == ""
        }
        unused = ["--master"] if "master" in typed else []
        if "spark_conf" in typed:
            unused += [f"--spark-conf {name}" for name in sorted(self.spark_conf.keys() - {STATE})]
        if self.engine is EngineName.PROCESS and "engine" in typed and unused:
            raise UsageError(
                f"{unused[0]} is given, but with --engine process the drain does not run on Spark",
                hint="Remove one of the two.",
            )

    def spark(self, plan: PlanPlace | None, *, resumes: bool = False) -> Any:
        """Return Spark's settings for a drain whose plan is at this place.

        The result is None if the drain runs in this process. If such a drain ``resumes``, it may
        continue one that began on Spark: ``drainer.state`` names where Spark's tasks recorded what
        they finished.

        Raises UsageError if the options contradict each other, and ExtraMissing if PySpark is not
        installed.
        """
        if self.is_spark:
            settings = Extension.SPARK.load().spark_settings
            return settings(plan, self.master, self.spark_conf)
        unused = self.spark_conf.keys() - ({STATE} if resumes else set())
        if self.engine is None and unused:
            raise UsageError(
                f"--spark-conf {min(unused)} is given, but the drain does not run on Spark",
                hint="Add --master or --engine spark, or ignore it with --engine process.",
            )
        return None

    def resolve(self, prepared: Prepared, spark: Any) -> Prepared:
        """Return the prepared drain with the engine that it will run on.

        ``spark`` is the result of ``spark()``. Raises Refused if Spark finds no Java.
        """
        is_file = isinstance(prepared.action.plan_path, Path)
        if spark is None:
            return prepared
        if prepared.plan.account.complete and is_file and not prepared.action.follows:
            idle = ShownEngine(title="this process, since nothing is left to handle")
            return replace(prepared, action=replace(prepared.action, engine=idle))
        return Extension.SPARK.load().on_spark(prepared, spark)  # type: ignore[no-any-return]
