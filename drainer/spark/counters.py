"""A drain's counters among Spark's own metrics: its UI has them at ``/metrics/json``, and whatever
``spark.metrics.conf`` sends metrics to."""

from __future__ import annotations

import threading
from dataclasses import fields
from queue import SimpleQueue
from typing import Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from drainer.core.progress import Counts

NAMES = tuple(field.name for field in fields(Counts))


class Counters:
    """A context manager; ``show`` is given the counts of sub-messages, and never waits for Spark's
    JVM. Spark has no way to take a metric back: it is for a context that ends with the drain."""

    def __init__(self, context: SparkContext) -> None:
        self._counts: SimpleQueue[Counts | None] = SimpleQueue()
        self.show = self._counts.put
        telling = threading.Thread(target=self._tell, args=(context,), name="counters", daemon=True)
        telling.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._counts.put(None)

    def _tell(self, context: Any) -> None:
        try:
            jvm, spark = context._jvm, context._jsc.sc()
            found = {f"drainer.{name}": spark.longAccumulator(f"drainer {name}") for name in NAMES}
            named = jvm.java.util.HashMap()
            for name, accumulator in found.items():
                named.put(name, accumulator)
            source = getattr(jvm, "org.apache.spark.metrics.source.LongAccumulatorSource$")
            utils = jvm.org.apache.spark.api.python.PythonUtils
            getattr(source, "MODULE$").register(spark, utils.toScalaMap(named))
            last = Counts()
            while (counts := self._counts.get()) is not None:
                for name, change in zip(NAMES, _numbers(counts - last), strict=True):
                    if change:
                        found[f"drainer.{name}"].add(change)
                last = counts
        except (Py4JError, OSError):
            pass  # Spark is gone, which ends the drain


def _numbers(counts: Counts) -> tuple[int, ...]:
    return tuple(getattr(counts, name) for name in NAMES)
