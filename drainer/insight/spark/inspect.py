"""``drainer inspect --full`` on Spark: a session that lasts as long as the reading does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from drainer.engine.status import RuleStatus
from drainer.insight.spark.survey import Progress, SparkSurvey, survey_on_spark
from drainer.insight.spark.task import Connection
from drainer.kafka.backlog import Backlog
from drainer.loader import LoadedHandler
from drainer.policy.rules.settings import RuleSettings
from drainer.spark.failure import spark_failures
from drainer.spark.session import spark_session
from drainer.spark.settings import SparkLook

__all__ = ["Connection", "OnSpark"]


class OnSpark:
    """Surveys whole backlogs on Spark, for ``operations.inspect``; begins no session before.

    ``say`` gets a line when Spark is started, which takes seconds. ``verbose`` lets Spark tell of
    errors in its own words, too. ``rule_status`` is what rules could not be told of, afterwards.
    """

    def __init__(
        self,
        look: SparkLook,
        connection: Connection,
        handler: LoadedHandler | None,
        rules: RuleSettings,
        say: Callable[[str], None],
        *,
        verbose: bool = False,
    ) -> None:
        self._look = look
        self._connection = connection
        self._handler = handler
        self._rules = rules
        self._say = say
        self._verbose = verbose
        self.rule_status = RuleStatus()

    def __call__(self, backlog: Backlog, progress: Progress) -> tuple[SparkSurvey, float]:
        """The survey, and the seconds that it took, without Spark's start.

        Raises what a task raised, and DrainerError for what else goes wrong on Spark.
        """
        master = self._look.master
        self._say(f"starting Spark on {master}")
        with spark_failures():
            name = f"drainer inspect {backlog.topic}"
            # What fails is told by drainer, and would be told a second time with Java's stack.
            log = "error" if self._verbose else "off"
            own = {"spark.ui.enabled": "false"} if self._look.is_local else {}  # seen by nobody
            spark = spark_session(master, name, {**own, **self._look.conf}, log=log)
        # Not on this thread: PySpark hears Ctrl-C on it, and can't cancel jobs while it is waiting
        # for one there.
        with ThreadPoolExecutor(1, "spark-survey") as aside:
            try:
                survey = aside.submit(
                    survey_on_spark,
                    spark,
                    backlog,
                    self._connection,
                    self._handler,
                    self._rules,
                    self._look.tasks,
                    progress,
                ).result()
            finally:
                with spark_failures():
                    spark.stop()
        self.rule_status = survey.rule_status
        return survey, survey.read_s
