"""What is known of a backlog before it is drained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drainer.core.transaction import HeldBack, held_json
from drainer.engine.preview import PROCESS, SPARK
from drainer.errors import EXIT_DONE
from drainer.insight.retention import ARRIVALS_S, Doomed
from drainer.insight.statistics.contents import Bin, Contents
from drainer.insight.statistics.retention_forecast import Doom, Retention
from drainer.insight.statistics.sketch import Mean, Share
from drainer.insight.statistics.skew import Skew
from drainer.kafka.cluster import GroupInfo, Replicas

HOT_SHARE = 0.01  # of a sub-key: with a concurrency of 100, from there on its lane is what binds
HOT_MESSAGES = 20  # read of it, or it may be chance


@dataclass(frozen=True, slots=True)
class PartitionInspection:
    """One partition's share of the backlog. What the leader would tell is None without a leader.

    Attributes:
        partition: its number.
        leader: ``host:port``; empty when it has none.
        replicas: who has it.
        start, end: the backlog, offsets ``[start, end)``.
        committed: the group's committed offset; None when there is none.
        log_start, log_end: what the log holds.
        messages: how many of the offsets are messages.
        bytes: keys and values of those.
        lost: offsets that were deleted before the group handled them.
        head_offset: of the oldest unprocessed message; None when there is none.
        head_ms: its timestamp, milliseconds since 1970; None when it has none.
        age_s: how old that is.
        arrivals_per_s: offsets added a second, over the last ``ARRIVALS_S`` seconds.
        doom: when retention may delete the head at the earliest; None when it won't, or that
            can't be told.
    """

    partition: int
    leader: str
    replicas: Replicas
    start: int = 0
    end: int = 0
    committed: int | None = None
    log_start: int = 0
    log_end: int = 0
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    head_offset: int | None = None
    head_ms: int | None = None
    age_s: float | None = None
    arrivals_per_s: float = 0.0
    doom: Doom | None = None

    @property
    def offline(self) -> bool:
        return not self.leader

    @property
    def offsets(self) -> int:
        """How many offsets the backlog spans."""
        return self.end - self.start

    @property
    def under_replicated(self) -> bool:
        return len(self.replicas.in_sync) < len(self.replicas.all)

    @property
    def arrivals_s(self) -> float | None:
        """How long its messages took to arrive, at that rate."""
        return self.offsets / self.arrivals_per_s if self.arrivals_per_s else None

    def as_json(self) -> dict[str, Any]:
        return {
            "leader": self.leader or None,
            "replicas": list(self.replicas.all),
            "in_sync_replicas": list(self.replicas.in_sync),
            "start": self.start,
            "end": self.end,
            "committed": self.committed,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "offsets": self.offsets,
            "messages": self.messages,
            "bytes": self.bytes,
            "lost": self.lost,
            "head_offset": self.head_offset,
            "head_ms": self.head_ms,
            "age_s": self.age_s,
            "arrivals_per_s": self.arrivals_per_s,
            "arrivals_s": self.arrivals_s,
            "retention_s": self.doom.in_s if self.doom else None,
            "retention_by": self.doom.by if self.doom else None,
        }


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """What was read of the backlog.

    Attributes:
        full: whether that is all of it.
        offsets: how many offsets that spans.
        windows: in how many places.
        seed: what the places were drawn by.
        read_s: how long reading took, without splitting; on Spark, with it.
        bytes: keys and values.
        split_s: how long ``split`` took for all of the messages; on Spark, of all tasks together.
        tasks: how many read it on Spark; None for this process.
    """

    full: bool
    offsets: int
    windows: int
    seed: int
    read_s: float
    bytes: int
    split_s: float
    tasks: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "full": self.full,
            "offsets": self.offsets,
            "windows": self.windows,
            "seed": self.seed,
            "read_s": self.read_s,
            "bytes": self.bytes,
            "split_s": self.split_s,
            "engine": PROCESS if self.tasks is None else SPARK,
            "tasks": self.tasks,
        }


@dataclass(frozen=True, slots=True)
class SplitFailures:
    """Messages that ``split`` did not take: a drain would halt at the first of them."""

    messages: int
    first: str
    hint: str | None

    def as_json(self) -> dict[str, Any]:
        return {"messages": self.messages, "first": self.first, "hint": self.hint}


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
        min_in_sync: min.insync.replicas; None when the user may not see it.
        reading: what was read to know what follows.
        contents: of the messages that were read.
        mean_bytes: of a message.
        skew: with a handler, how the work is spread.
        failures: of ``split``; None when there were none.
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
    min_in_sync: int | None
    reading: ReadExtent
    contents: Contents
    skew: Skew | None
    failures: SplitFailures | None
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
    def bytes_error(self) -> float | None:
        """How far ``bytes`` may be off (95%); None when that is not known."""
        error = self.contents.mean_bytes.error
        return None if error is None else error * self.messages

    @property
    def sub_messages(self) -> Mean | None:
        """How many sub-messages the backlog has, and how far that may be off; None without skew."""
        if self.skew is None:
            return None
        mean = self.skew.fan_out.mean
        return Mean(
            mean.value * self.messages,
            None if mean.error is None else mean.error * self.messages,
        )

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
    def arrivals_s(self) -> float | None:
        """How long the backlog took to arrive, at that rate."""
        return self.offsets / self.arrivals_per_s if self.arrivals_per_s else None

    @property
    def doomed(self) -> PartitionInspection | None:
        """The partition whose head retention may delete first; None when that can't be told."""
        known = [part for part in self.partitions if part.doom is not None]
        return min(known, key=lambda part: part.doom.in_s if part.doom else 0.0, default=None)

    @property
    def head_doomed(self) -> Doomed | None:
        """The same, in the form that an estimate has it in."""
        part = self.doomed
        if part is None or part.doom is None or part.head_offset is None:
            return None
        return Doomed(part.partition, part.head_offset, part.doom.in_s, part.doom.by)

    @property
    def retention_s(self) -> float | None:
        """Seconds until retention may delete the head of the backlog, at the earliest."""
        return self.doomed.doom.in_s if self.doomed and self.doomed.doom else None

    @property
    def offline(self) -> list[PartitionInspection]:
        return [part for part in self.partitions if part.offline]

    @property
    def under_min_in_sync(self) -> list[PartitionInspection]:
        """Partitions that take no writes with acks=all."""
        least = self.min_in_sync or 0
        return [p for p in self.partitions if not p.offline and len(p.replicas.in_sync) < least]

    @property
    def under_replicated(self) -> list[PartitionInspection]:
        """Those that are, and still take writes."""
        worse = {part.partition for part in (*self.offline, *self.under_min_in_sync)}
        return [p for p in self.partitions if p.under_replicated and p.partition not in worse]

    @property
    def hot(self) -> Share | None:
        """The hottest sub-key, when it has so much of the work that it binds a drain."""
        hottest = self.skew.hottest[0] if self.skew and self.skew.hottest else None
        if hottest is None or hottest.share < HOT_SHARE or hottest.count < HOT_MESSAGES:
            return None
        return hottest

    def as_json(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "exit_code": EXIT_DONE,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "cluster_id": self.cluster_id,
            "group": {
                "name": self.group.name,
                "state": self.group.state,
                "kind": self.group.kind,
                "active": self.group.active,
                "members": [
                    {"id": m.id, "client_id": m.client_id, "host": m.host}
                    for m in self.group.members
                ],
            },
            "isolation": self.isolation,
            "handler": self.handler,
            "taken_ms": self.taken_ms,
            "offsets": self.offsets,
            "messages": self.messages,
            "bytes": self.bytes,
            "bytes_error": self.bytes_error,
            "sub_messages": self.sub_messages.as_json() if self.sub_messages else None,
            "lost": self.lost,
            "remarks": list(self.remarks),
            "held_back": held_json(self.held),
            "age_s": self.age_s,
            "ages_s": [part.as_json() for part in self.ages],
            "arrivals_per_s": self.arrivals_per_s,
            "arrivals_over_s": ARRIVALS_S,
            "arrivals_s": self.arrivals_s,
            "retention": self.retention.as_json(),
            "retention_s": self.retention_s,
            "min_in_sync_replicas": self.min_in_sync,
            "offline": [part.partition for part in self.offline],
            "under_min_in_sync": [part.partition for part in self.under_min_in_sync],
            "under_replicated": [part.partition for part in self.under_replicated],
            "hot": self.hot.as_json() if self.hot else None,
            "partitions": {str(part.partition): part.as_json() for part in self.partitions},
            "reading": self.reading.as_json(),
            "contents": self.contents.as_json(),
            "skew": self.skew.as_json() if self.skew else None,
            "split_failures": self.failures.as_json() if self.failures else None,
        }
