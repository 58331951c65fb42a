"""Options of the engine of a drain: this process, or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.engine.preview import PROCESS, EngineChoice, EngineName
from drainer.errors import UsageError
from drainer.extensions import Extension
from drainer.model.option import PAIRS, SIZE, option
from drainer.store.place import PlanPlace

if TYPE_CHECKING:
    from drainer.operations.start import Prepared

NO_MASTER = "no Spark master is named"


_spark = partial(option, panel="Spark", resumes=True)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that is requested, and how it would run on Spark."""

    engine: EngineName = _spark(
        "Where to run; auto considers Spark if --master or --remote is given.", EngineName.AUTO
    )
    master: str | None = _spark(
        "Spark master, such as local[4] or spark://HOST:PORT.",
        None,
        unset="local[*]",
        envvar="DRAINER_SPARK_MASTER",
        metavar="URL",
    )
    remote: str | None = _spark(
        "Server of Spark Connect, in place of a master.",
        None,
        unset="none",
        envvar="DRAINER_SPARK_REMOTE",
        metavar="URL",
    )
    spark_conf: Mapping[str, str] = _spark(
        "Spark setting; repeatable. Other users can see it: no secrets.", {}, PAIRS, pairs=True
    )
    wave_bytes: int = _spark(
        "Bytes of backlog that Spark reads and handles in one wave.", 2 * 1024**3, SIZE
    )
    state: str | None = _spark(
        "Folder or URI where tasks record what is done.", None, unset="PLAN.state", metavar="URI"
    )
    tasks: int | None = _spark(
        "Maximum tasks that handle at once.", None, unset="depends on the cores"
    )
    shards: int | None = _spark("Hash ranges of sub-keys.", None, unset="3 per slot, at least 16")
    archives: tuple[str, ...] = _spark(
        "Archive that executors import: .zip, .whl, .egg or .py; repeatable.",
        (),
        name="--archive",
        metavar="PATH",
    )

    @property
    def may_be_spark(self) -> bool:
        """Whether Spark is requested, or a master of it is named."""
        return self.engine is EngineName.SPARK or (
            self.engine is EngineName.AUTO and (self.master or self.remote) is not None
        )

    def spark(self, plan: PlanPlace | None) -> Any:
        """Spark's settings, for a drain with its ``plan`` there; None when this process is the
        engine, whatever is given for Spark.

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
        given = {each.name: getattr(self, each.name) for each in fields(EngineOptions)[1:]}
        given["conf"] = given.pop("spark_conf")
        return Extension.SPARK.load().spark_settings(plan, **given)

    def resolve(self, prepared: Prepared, spark: Any) -> Prepared:
        """Return what was prepared, with the engine that it will run on.

        Raises Refused when Spark is requested, and this drain can't run there or there is no Java.
        """
        by_name = self.engine is not EngineName.AUTO
        is_file = isinstance(prepared.action.plan_path, Path)  # at a URI there is no journal
        over = prepared.plan.account.complete and is_file
        if spark is not None and not over:
            resolve = Extension.SPARK.load().resolve_on_spark
            return resolve(prepared, spark, by_master=not by_name)  # type: ignore[no-any-return]
        why = "set by --engine" if by_name else NO_MASTER
        chosen = EngineChoice(PROCESS, why if spark is None else "nothing is left to handle")
        action = replace(prepared.action, engine=chosen)
        return replace(prepared, action=action)
