"""Spark as the engine of a drain."""

from __future__ import annotations

from dataclasses import dataclass

from drainer.engine.status import Summary
from drainer.operations.engine import HeldDrain
from drainer.spark.settings import SparkSettings


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Reads and handles in Spark's tasks."""

    settings: SparkSettings

    def __call__(self, held: HeldDrain) -> Summary:
        # PySpark takes half a second to import, and a preview does without.
        from drainer.spark.drain import SparkDrain  # noqa: PLC0415

        return SparkDrain(held, self.settings).run()
