"""What is known of a backlog before it is drained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drainer.core.codec import builtins
from drainer.core.transaction import HeldBack
from drainer.engine.status import RuleStatus
from drainer.errors import EXIT_DONE
from drainer.insight.retention import ARRIVALS_S, Expiry, Retention, earliest
from drainer.insight.sketch import Share
from drainer.insight.survey import Contents, Skew, SplitFailures
from drainer.kafka.backlog import PartitionBacklog
from drainer.kafka.cluster import GroupInfo, Replicas

HOT_SHARE = 0.01  # of a sub-key: with a concurrency of 100, from there on its lane is what binds
HOT_MESSAGES = 20  # read of it, or it may be chance


# What --json has of an inspection beside its fields.
_FIGURES = (
    *("offsets", "messages", "bytes", "sub_messages", "lost", "hot", "age_s", "arrivals_per_s"),
    *("expiry", "retention_s", "offline", "under_replicated"),
)


@dataclass(frozen=True, slots=True)
class Bin:
    """The share of a backlog's offsets that are ``low`` to ``high`` seconds old."""

    low: float
    high: float
    share: float


@dataclass(frozen=True, slots=True)
class PartitionInspection(PartitionBacklog):
    """One partition's share of the backlog; empty without a leader.

    Attributes:
        leader: ``host:port``; empty when it has none.
        replicas: who has it.
        messages: how many of the offsets are messages.
        bytes: keys and values of those.
        age_s: how old the oldest unprocessed message is; None when it has no timestamp.
        arrivals_per_s: offsets added a second, over the last ``ARRIVALS_S`` seconds.
        expiry: when retention may delete the head at the earliest; None when it won't, or that
            can't be told.
    """

    leader: str
    replicas: Replicas
    messages: int = 0
    bytes: int = 0
    age_s: float | None = None
    arrivals_per_s: float = 0.0
    expiry: Expiry | None = None

    @property
    def lost(self) -> int:
        """How many offsets were deleted before the group handled them."""
        return 0 if self.committed is None else max(0, self.log_start - self.committed)

    @property
    def offline(self) -> bool:
        return not self.leader

    @property
    def under_replicated(self) -> bool:
        return len(self.replicas.in_sync) < len(self.replicas.all)


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """What was read of the backlog.

    Attributes:
        full: whether that is all of it.
        offsets: how many offsets that spans.
        read_s: how long reading and splitting took.
        tasks: how many read it on Spark; None for this process.
    """

    full: bool
    offsets: int
    read_s: float
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """A backlog as it was found; nothing was handled or committed.

    Attributes:
        topic, topic_id, cluster_id: whose.
        group: whose backlog it is, as it is now.
        isolation: what is read of transactions.
        handler: its reference; None when none was given.
        taken_ms: when, milliseconds since 1970.
        partitions: those that were asked for.
        ages: the share of the backlog's offsets by age in seconds, the youngest first; none when
            no head has a timestamp.
        retention: what the topic does with old records.
        reading: what was read to know what follows.
        contents: of the messages that were read.
        skew: with a handler, how the work is spread.
        failures: of ``split``; None when there were none.
        rule_status: what rules could not be told of.
        remarks: on its bounds: what is lost, what is assumed, what is held back.
        held: what open transactions keep behind its end.
    """

    topic: str
    topic_id: str
    cluster_id: str
    group: GroupInfo
    isolation: str
    handler: str | None
    taken_ms: int
    partitions: Sequence[PartitionInspection]
    ages: Sequence[Bin]
    retention: Retention
    reading: ReadExtent
    contents: Contents
    skew: Skew | None
    failures: SplitFailures | None
    rule_status: RuleStatus = field(default_factory=RuleStatus)
    remarks: tuple[str, ...] = ()
    held: tuple[HeldBack, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets the backlog spans: an upper bound for its messages."""
        return sum(part.offsets for part in self.partitions)

    @property
    def messages(self) -> int:
        """How many messages that are; estimated unless everything was read."""
        return sum(part.messages for part in self.partitions)

    @property
    def bytes(self) -> int:
        """What they have in keys and values; estimated unless everything was read."""
        return sum(part.bytes for part in self.partitions)

    @property
    def sub_messages(self) -> int | None:
        """How many sub-messages the backlog has, likewise; None without skew."""
        return None if self.skew is None else round(self.skew.fan_out.mean * self.messages)

    @property
    def lost(self) -> int:
        """How many offsets were deleted before the group handled them."""
        return sum(part.lost for part in self.partitions)

    @property
    def age_s(self) -> float | None:
        """How old the oldest unprocessed message is."""
        return max((p.age_s for p in self.partitions if p.age_s is not None), default=None)

    @property
    def arrivals_per_s(self) -> float:
        return sum(part.arrivals_per_s for part in self.partitions)

    @property
    def expiry(self) -> Expiry | None:
        """The head that retention may delete first; None when that can't be told."""
        return earliest(part.expiry for part in self.partitions)

    @property
    def retention_s(self) -> float | None:
        """Seconds until retention may delete the head of the backlog, at the earliest."""
        return None if self.expiry is None else self.expiry.in_s

    @property
    def offline(self) -> list[int]:
        """Partitions without a leader."""
        return [part.partition for part in self.partitions if part.offline]

    @property
    def under_replicated(self) -> list[int]:
        """Partitions that have a leader, and replicas that don't keep up with it."""
        return [p.partition for p in self.partitions if p.under_replicated and not p.offline]

    @property
    def hot(self) -> Share | None:
        """The hottest sub-key, when it has so much of the work that it binds a drain."""
        hottest = self.skew.hottest[0] if self.skew and self.skew.hottest else None
        if hottest is None or hottest.share < HOT_SHARE or hottest.count < HOT_MESSAGES:
            return None
        return hottest

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints: the fields by their names, partitions by number, and figures."""
        fields = builtins(self)
        del fields["rule_status"]
        return {
            "status": "ok",
            "exit_code": EXIT_DONE,
            **fields,
            **{name: builtins(getattr(self, name)) for name in _FIGURES},
            "arrivals_over_s": ARRIVALS_S,
            "undecided": dict(self.rule_status.undecided),
            "why": dict(self.rule_status.why),
            "partitions": builtins({part.partition: part for part in self.partitions}),
        }
