"""The options that say what ``run`` and ``resume`` run on: this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from drainer import wings
from drainer.cli.groups import option, options
from drainer.cli.values import parse_pairs, parse_size
from drainer.engine.preview import PROCESS, EngineChoice, EngineName
from drainer.engine.settings import LocalSettings
from drainer.operations.engine import IN_PROCESS
from drainer.operations.start import Prepared

NO_MASTER = "no Spark master is named"


@options("What it runs on")
class Engines:
    """The engine that is asked for, and how it would run on Spark."""

    engine: EngineName = option(
        default=EngineName.AUTO,
        resumes=True,
        help="This process or Spark. The preview says which auto takes, and why.",
    )
    master: str | None = option(
        default=None,
        envvar="DRAINER_SPARK_MASTER",
        resumes=True,
        metavar="URL",
        help="Spark's master, as local[4] or spark://HOST:PORT. Default: local[*].",
    )
    spark_conf: Mapping[str, str] = option(
        default=(),
        many=str,
        parse=parse_pairs,
        resumes=True,
        pairs=True,
        help="A setting of Spark; repeatable. Others see it: no secrets here.",
    )
    wave_bytes: int = option(
        default="2GiB",
        parse=parse_size,
        resumes=True,
        help="How much of the backlog Spark reads and handles at once.",
    )
    state: str | None = option(
        default=None,
        resumes=True,
        metavar="URI",
        help="Folder or URI where tasks put what they finished. Default: PLAN.state.",
    )
    tasks: int | None = option(
        default=None,
        resumes=True,
        metavar="N",
        help="How many tasks handle at once. Default: one per core.",
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
    def is_open(self) -> bool:
        """Whether an estimate decides."""
        return self.engine is EngineName.AUTO and self.master is None

    def request(self) -> Any:
        """What is asked of Spark's wing; None when nothing is, as with ``--engine process``.

        Raises UsageError.
        """
        if self.engine is EngineName.PROCESS or self == Engines():
            return None
        return wings.load(wings.Hook.ASK_FOR_ENGINE)(self)

    def settle(
        self,
        prepared: Prepared,
        asked: Any,
        running: LocalSettings,
        look: Callable[[], Any] | None = None,
    ) -> Prepared:
        """What was prepared, with the engine that it will run on.

        ``look`` makes the estimate that decides when nothing else does. Raises Refused when Spark
        is asked for, and this drain can't run there or there is no Java.
        """
        if self.engine is EngineName.PROCESS:
            chosen = EngineChoice(PROCESS, "as --engine says")
        elif asked is None and look is None:
            chosen = EngineChoice(PROCESS, NO_MASTER)
        else:
            settle = wings.load(wings.Hook.SETTLE_ENGINE)
            return settle(prepared, asked, running, look)  # type: ignore[no-any-return]
        action = replace(prepared.action, engine=chosen)
        return replace(prepared, action=action, engine=IN_PROCESS)
