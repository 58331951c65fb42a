"""Where the traffic of ``drainer limits`` runs: a session of Spark's, and tasks on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from pyspark.sql import SparkSession

from drainer.errors import DrainerError, Refused
from drainer.kafka.settings import ClientSettings
from drainer.limits.spark.traffic import SparkTraffic
from drainer.spark.failure import spark_failures
from drainer.spark.session import LOCAL_CONF, LOCAL_JAVA, slots_of, spark_session
from drainer.spark.settings import SparkLook

NAME = "drainer limits"


class TrafficHost:
    """A session for the traffic; a context manager that begins it and ends it.

    One that runs already in this process is used, and left running.

    Raises:
        UsageError, Refused: as ``spark_session``.
    """

    def __init__(self, place: SparkLook, client: ClientSettings, jmx: Sequence[str] = ()) -> None:
        self._place = place
        self._client = client
        self._jmx = tuple(jmx)
        self._session: SparkSession | None = None
        self._owned = False

    def __enter__(self) -> Self:
        self._owned = SparkSession.getActiveSession() is None
        conf = {**(LOCAL_CONF if self._place.is_local else {}), **self._place.conf}
        java = LOCAL_JAVA if self._place.is_local else ""
        self._session = spark_session(self._place.master, NAME, conf, log="off", java=java)
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None and self._owned:
            with suppress(DrainerError), spark_failures():
                self._session.stop()

    def traffic(self, topic: str, groups: Sequence[str]) -> SparkTraffic:
        """Traffic on this topic, of as many tasks as can run at once."""
        assert self._session is not None
        with spark_failures():
            context = self._session.sparkContext
            slots = slots_of(context, wait=self._owned and not self._place.is_local)
        tasks = self._place.tasks or slots
        if self._place.is_local and tasks > slots:  # elsewhere executors may come yet
            raise Refused(
                f"{self._place.master} runs {slots} tasks at once, and --tasks asks for {tasks}",
                hint="all of them have to run at once: ask for fewer, or leave it out",
            )
        return SparkTraffic(self._session, self._client, topic, groups, tasks, self._jmx)
