"""The options that say what a drain runs on: this process, or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from drainer import wings
from drainer.cli.groups import option, options
from drainer.cli.values import parse_pairs, parse_size
from drainer.engine.preview import PROCESS, EngineChoice, EngineName
from drainer.errors import UsageError
from drainer.operations.engine import IN_PROCESS
from drainer.operations.start import Prepared
from drainer.store.plan_file import PlanPlace

NO_MASTER = "no Spark master is named"


@options("Spark")
class Engines:
    """The engine that is asked for, and how it would run on Spark."""

    engine: EngineName = option(
        default=EngineName.AUTO,
        resumes=True,
        help="Where to run. auto considers Spark if you name a master.",
    )
    master: str | None = option(
        default=None,
        envvar="DRAINER_SPARK_MASTER",
        resumes=True,
        metavar="URL",
        help="Spark master, such as local[4] or spark://HOST:PORT. Default: local[*].",
    )
    spark_conf: Mapping[str, str] = option(
        default=(),
        many=str,
        parse=parse_pairs,
        resumes=True,
        pairs=True,
        help="A Spark setting; repeatable. Other users can see it: no secrets.",
    )
    wave_bytes: int = option(
        default="2GiB",
        parse=parse_size,
        resumes=True,
        help="Bytes of backlog that Spark reads and handles in one wave.",
    )
    state: str | None = option(
        default=None,
        resumes=True,
        metavar="URI",
        help="Folder or URI where tasks record what is done. Default: PLAN.state.",
    )
    tasks: int | None = option(
        default=None,
        resumes=True,
        metavar="N",
        help="Most tasks that handle at once. Default: depends on the cores.",
    )
    shards: int | None = option(
        default=None,
        resumes=True,
        metavar="N",
        help="Hash ranges of sub-keys. Default: 3 per slot, at least 16.",
    )
    archives: tuple[str, ...] = option(
        "--archive",
        default=(),
        many=str,
        resumes=True,
        metavar="PATH",
        help="A .zip, .whl, .egg or .py that executors import; repeatable.",
    )

    @property
    def may_be_spark(self) -> bool:
        """Whether Spark is asked for, or a master of it is named."""
        return self.engine is EngineName.SPARK or (
            self.engine is EngineName.AUTO and self.master is not None
        )

    def spark(self, plan: PlanPlace | None) -> Any:
        """Spark's settings, for a drain with its ``plan`` there; None when this process is the
        engine, whatever is said of Spark.

        Raises UsageError; ExtraMissing when PySpark is not installed.
        """
        if not self.may_be_spark:
            if isinstance(plan, str):
                raise UsageError(
                    f"the plan {plan} is a URI; a drain in this process needs a file",
                    hint="Add --engine spark, or name a file.",
                )
            if self.engine is EngineName.AUTO and (
                self.tasks or self.state or self.archives or self.spark_conf
            ):
                raise UsageError(
                    f"a Spark option is given, but {NO_MASTER}",
                    hint="Add --master or --engine spark, or ignore it with --engine process.",
                )
            return None
        return wings.load(wings.Hook.SPARK_SETTINGS)(self, plan)

    def settle(self, prepared: Prepared, spark: Any) -> Prepared:
        """What was prepared, with the engine that it will run on.

        Raises Refused when Spark is asked for, and this drain can't run there or there is no Java.
        """
        by_name = self.engine is not EngineName.AUTO
        is_file = isinstance(prepared.action.plan_path, Path)  # at a URI there is no journal
        over = prepared.plan.complete and is_file
        if spark is not None and not over:
            settle = wings.load(wings.Hook.SETTLE_ON_SPARK)
            return settle(prepared, spark, by_master=not by_name)  # type: ignore[no-any-return]
        why = "as --engine says" if by_name else NO_MASTER
        chosen = EngineChoice(PROCESS, why if spark is None else "nothing is left to handle")
        action = replace(prepared.action, engine=chosen)
        return replace(prepared, action=action, engine=IN_PROCESS)
