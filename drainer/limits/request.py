"""What ``drainer limits`` is asked for, and the settings that follow on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from drainer.errors import UsageError
from drainer.limits.search.settings import Asked, Axis, LimitSettings
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsRequest(Asked):
    """What was asked for. Partitions, also those in ``values``, are for each broker.

    Attributes:
        out: the file of the result.
        pace_bytes_per_s: of one producer; None for what makes the search fine-grained.
        bytes_per_s_most: that all producers together never exceed; None for no bound of this kind.
        shared: others may use the cluster; a trial ends within about a second of overload.
        jmx: ``host:port`` of brokers' metrics.
    """

    out: Path
    producers_most: int = PRODUCERS_MOST
    pace_bytes_per_s: float | None = None
    bytes_per_s_most: float | None = None
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
        asked = {each.name: getattr(self, each.name) for each in fields(Asked)}
        if self.axis is Axis.PARTITIONS:
            asked["values"] = tuple(int(value) * brokers for value in self.values)
        asked |= {"partitions": self.partitions * brokers, "producers_most": most}
        return LimitSettings(**asked, pace_bytes_per_s=pace, jmx=bool(self.jmx))


def differences(before: LimitSettings, now: LimitSettings) -> list[str]:
    """In which settings they differ, as in ``--consumer-groups was 5, and is 7``."""
    return [
        f"{SAID_BY.get(name, name)} was {_told(getattr(before, name))},"
        f" and is {_told(getattr(now, name))}"
        for name in before.differences(now)
    ]


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
