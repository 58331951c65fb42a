"""What ``drainer limits`` is asked for, and the settings that follow on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from drainer.errors import UsageError
from drainer.limits.search.overload import Thresholds
from drainer.limits.search.settings import Axis, LimitSettings, Value
from drainer.limits.trials import Pauses

# More than a broker bears that also has readers: Dropbox's bore 60 MB/s with five groups.
BYTES_PER_S_A_BROKER = 200e6
PRODUCERS_MOST = 256
SAID_BY = {
    "axis": "what is varied",
    "values": "the list of values",
    "pace_bytes_per_s": "the pace of a producer, in bytes/s",
    "producers_most": "the most producers",
    "message_bytes": "the size of messages",
    "consumer_groups": "--consumer-groups",
    "partitions": "the number of partitions",
    "compression": "--compression",
    "compressibility": "--compressibility",
    "precision": "--precision",
    "safe_share": "--safe-share",
    "trials_most": "--trials",
    "window_s": "--window",
    "jmx": "whether there is --jmx",
    "thresholds": "what counts as overload",
}  # settings as a person knows them


@dataclass(frozen=True, slots=True)
class LimitsRequest:
    """What was asked for.

    Attributes:
        axis: what is varied, over ``values``; partitions are those for each broker.
        out: the file of the result.
        partitions: of the test topic, for each broker.
        pace_bytes_per_s: of one producer; None for what makes the search fine-grained.
        bytes_per_s_most: that all producers together never exceed; None for no bound of this kind.
        shared: others may use the cluster; a trial ends within about a second of overload.
        jmx: ``host:port`` of brokers' metrics.
    """

    axis: Axis
    values: tuple[Value, ...]
    out: Path
    message_bytes: int = 1024
    consumer_groups: int = 5
    partitions: int = 10
    compression: str = "none"
    compressibility: float = 0.0
    pace_bytes_per_s: float | None = None
    producers_most: int = PRODUCERS_MOST
    bytes_per_s_most: float | None = None
    precision: float = 0.05
    trials_most: int = 14
    safe_share: float = 0.8
    window_s: float = 30.0
    pauses: Pauses = field(default_factory=lambda: Pauses(10.0, 60.0))
    shared: bool = False
    jmx: tuple[str, ...] = ()

    def settings(self, brokers: int) -> LimitSettings:
        """For a cluster of so many brokers. Raises UsageError when they contradict each other."""
        bound = self.bytes_per_s_most
        top = bound if bound is not None else BYTES_PER_S_A_BROKER * brokers
        pace = self.pace_bytes_per_s or top / self.producers_most
        most = self.producers_most
        if bound is not None:
            most = min(most, int(bound / pace * (1 + 1e-9)))
        if most < 1:
            raise UsageError(
                f"one producer alone sends {pace / 1e6:,.3f} MB/s, more than --max-mb-per-s allows",
                hint="say a lower --pace, or none: then it is chosen",
            )
        values = self.values
        if self.axis is Axis.PARTITIONS:
            values = tuple(int(value) * brokers for value in values)
        return LimitSettings(
            axis=self.axis,
            values=values,
            pace_bytes_per_s=pace,
            producers_most=most,
            message_bytes=self.message_bytes,
            consumer_groups=self.consumer_groups,
            partitions=self.partitions * brokers,
            compression=self.compression,
            compressibility=self.compressibility,
            precision=self.precision,
            safe_share=self.safe_share,
            trials_most=self.trials_most,
            window_s=self.window_s,
            jmx=bool(self.jmx),
            thresholds=Thresholds(),
        )
