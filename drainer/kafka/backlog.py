"""The backlog: the frozen range of offsets per partition that a drain is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from drainer.errors import OffsetMissing, Refused, TopicMissing, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import Isolation
from drainer.kafka.topic import LogBounds

_TIME_HINT = "times are ISO 8601, local unless they say otherwise: @2026-11-20T18:00, @...T18:00Z"


@dataclass(frozen=True, slots=True)
class Committed:
    """From the group's committed offset."""

    def __str__(self) -> str:
        return "committed"


@dataclass(frozen=True, slots=True)
class Remaining(Committed):
    """The same, and where there is none, or its records are gone, from the first that is left."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """From the first record that retention left."""

    def __str__(self) -> str:
        return "earliest"


@dataclass(frozen=True, slots=True)
class End:
    """Until the end of the log as it is when the drain is planned."""

    def __str__(self) -> str:
        return "end"


@dataclass(frozen=True, slots=True)
class AtOffset:
    """From an offset on, or until before it."""

    offset: int

    def __str__(self) -> str:
        return str(self.offset)


@dataclass(frozen=True, slots=True)
class AtTime:
    """From the first record with this timestamp or a later one on, or until before it."""

    timestamp_ms: int

    def __str__(self) -> str:
        return f"@{datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).isoformat()}"


From = Committed | Earliest | AtOffset | AtTime
Until = End | AtOffset | AtTime


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One partition's share of the backlog: offsets ``[start, end)``, with holes or not.

    Attributes:
        partition: its number.
        start: where the drain begins.
        end: the first offset that is not part of it.
        committed: the group's committed offset when this was taken; None when it had none.
        log_start: the first offset that the log held.
        log_end: the offset behind the last record that the isolation level showed.
        leader_epoch: the epoch of the record before ``log_end``; None when the broker did not say.
        metadata: the text that was committed beside ``committed``.
    """

    partition: int
    start: int
    end: int
    committed: int | None
    log_start: int
    log_end: int
    leader_epoch: int | None
    metadata: str = ""

    @property
    def offsets(self) -> int:
        """How many offsets it spans: an upper bound for its messages."""
        return self.end - self.start

    @property
    def skipped_before(self) -> int:
        """How many offsets before the start the group has not handled, and this drain won't."""
        behind = self.log_start
        if self.committed is not None:
            behind = max(behind, self.committed)
        return max(0, self.start - behind)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a drain is about, as it was when the drain was planned."""

    cluster_id: str
    topic: str
    topic_id: str
    isolation: Isolation
    partitions: Mapping[int, PartitionBacklog]

    @property
    def offsets(self) -> int:
        """How many offsets it spans: an upper bound for its messages."""
        return sum(part.offsets for part in self.partitions.values())


def parse_from(text: str) -> From:
    """``committed``, ``earliest``, an offset, or ``@`` and a time.

    Raises:
        UsageError: when it is none of them.
    """
    word = text.strip()
    if word == "committed":
        return Committed()
    if word == "earliest":
        return Earliest()
    found = _offset_or_time(word)
    if found is None:
        raise UsageError(
            f"--from {text!r} is neither committed, earliest, an offset nor a time", hint=_TIME_HINT
        )
    return found


def parse_until(text: str) -> Until:
    """``end``, an offset, or ``@`` and a time.

    Raises:
        UsageError: when it is none of them.
    """
    word = text.strip()
    if word == "end":
        return End()
    found = _offset_or_time(word)
    if found is None:
        raise UsageError(f"--until {text!r} is neither end, an offset nor a time", hint=_TIME_HINT)
    return found


def freeze(
    cluster: Cluster,
    topic: str,
    group: str | None,
    partitions: Iterable[int] | None = None,
    from_: From = Committed(),
    until: Until = End(),
) -> Backlog:
    """Take the backlog of a group on a topic, or on some partitions of it.

    Without a group it is a range of the log, that may start anywhere.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        OffsetMissing: when it shall start at a committed offset that there is not.
        Refused: when records before the start are gone, the topic is not the one that the group
            read, the range lies outside of the log, the group would move backwards, or a partition
            has no leader now.
        UsageError: when one offset shall be that of several partitions, or it shall start at the
            committed offset of no group.
    """
    isolation = cluster.settings.isolation
    info = cluster.topic(topic)
    numbers = _chosen(topic, info.partitions, partitions)
    for bound, option in ((from_, "--from"), (until, "--until")):
        if isinstance(bound, AtOffset) and len(numbers) > 1:
            raise UsageError(
                f"{option} {bound} can't be the offset of {len(numbers)} partitions",
                hint="choose one partition, or give a time (@...), which fits all of them",
            )
    if without := [str(number) for number in numbers if not info.leaders[number]]:
        raise Refused(
            f"partition {', '.join(without)} of {topic} has no leader: its brokers are down",
            hint="bring a broker that holds it back, or drain the others with --partition",
        )
    if info.readable is False:
        raise Refused(f"this user may not read topic {topic}", hint="grant READ on the topic to it")
    commits = dict.fromkeys(numbers) if group is None else cluster.commits(group, topic, numbers)
    committed = {n: None if commit is None else commit.offset for n, commit in commits.items()}
    logs = cluster.log_bounds(topic, numbers, isolation)
    starts = _starts(cluster, topic, group, from_, committed, logs)
    ends = _ends(cluster, topic, until, logs)
    taken = {
        number: PartitionBacklog(
            number,
            starts[number],
            max(starts[number], ends[number]),
            committed[number],
            logs[number].start,
            logs[number].end,
            logs[number].leader_epoch,
            "" if (commit := commits[number]) is None else commit.metadata,
        )
        for number in numbers
    }
    return Backlog(cluster.cluster_id(), topic, info.topic_id, isolation, taken)


def _chosen(topic: str, known: Sequence[int], asked: Iterable[int] | None) -> tuple[int, ...]:
    numbers = tuple(known) if asked is None else tuple(sorted(set(asked)))
    if missing := [number for number in numbers if number not in known]:
        raise TopicMissing(
            f"{_list(topic, missing)} does not exist",
            hint=f"topic {topic} has partitions {known[0]} to {known[-1]}",
        )
    return numbers


def _starts(
    cluster: Cluster,
    topic: str,
    group: str | None,
    from_: From,
    committed: Mapping[int, int | None],
    logs: Mapping[int, LogBounds],
) -> dict[int, int]:
    for number, offset in committed.items():
        if offset is not None and offset > logs[number].high_watermark:
            raise Refused(
                f"group {group} committed offset {offset} on {topic}/{number}, but its log ends at"
                f" {logs[number].high_watermark}: the topic was truncated, or made again",
                hint="find out which records are lost; then reset the group's offset",
            )
    if group is None and isinstance(from_, Committed):
        raise UsageError(
            "no group is named whose committed offset could be the start",
            hint="name one, or say --from earliest, --from OFFSET or --from @TIME",
        )
    match from_:
        case Remaining():
            return {n: max(log.start, committed[n] or 0) for n, log in logs.items()}
        case Committed():
            return _committed_starts(cluster, topic, group or "", committed, logs)
        case Earliest():
            starts = {number: log.start for number, log in logs.items()}
        case AtOffset(offset):
            starts = dict.fromkeys(logs, offset)
        case AtTime(timestamp_ms):
            found = cluster.offset_at(topic, logs, timestamp_ms)
            starts = {number: _or(found[number], log.end) for number, log in logs.items()}
    for number, start in starts.items():
        log, known = logs[number], committed[number]
        if not log.start <= start <= log.high_watermark:
            raise Refused(
                f"--from {from_} is outside of {topic}/{number}, which holds offsets {log.start} to"
                f" {log.high_watermark}",
                hint="use --from committed or --from earliest",
            )
        if known is not None and start < known:
            raise Refused(
                f"--from {from_} is offset {start} on {topic}/{number}, before the offset {known}"
                f" that group {group} has committed: a drain never moves a group backwards",
                hint="to handle records again, drain with another group, or reset this one"
                " yourself first (kafka-consumer-groups --reset-offsets)",
            )
    return starts


def _committed_starts(
    cluster: Cluster,
    topic: str,
    group: str,
    committed: Mapping[int, int | None],
    logs: Mapping[int, LogBounds],
) -> dict[int, int]:
    empty = {number for number, log in logs.items() if log.start == log.end}
    missing = [n for n, offset in committed.items() if offset is None and n not in empty]
    if missing:
        whole = len(missing) == len(committed)
        others = [
            name for name in cluster.groups_with_offsets(topic, committed, group) if name != group
        ]
        known = f"; groups with offsets on it: {', '.join(others)}" if others else ""
        raise OffsetMissing(
            f"group {group} has no committed offset on"
            f" {topic if whole else _list(topic, missing)}: where shall the drain start?",
            hint=f"check the group's name, or say --from earliest, --from OFFSET or --from"
            f" @TIME{known}",
        )
    starts = {number: _or(offset, logs[number].end) for number, offset in committed.items()}
    for number, start in starts.items():
        gone = logs[number].start - start
        if gone > 0:
            raise Refused(
                f"retention has deleted up to {gone} records of {topic}/{number} that group"
                f" {group} never handled: offsets {start} to {logs[number].start - 1}",
                hint="to drain what is left, say --from earliest",
            )
    return starts


def _ends(
    cluster: Cluster, topic: str, until: Until, logs: Mapping[int, LogBounds]
) -> dict[int, int]:
    match until:
        case End():
            return {number: log.end for number, log in logs.items()}
        case AtOffset(offset):
            for number, log in logs.items():
                if offset > log.end:
                    raise Refused(
                        f"--until {offset} is beyond the end of {topic}/{number}, which is"
                        f" {log.end}",
                        hint="a backlog is what is there now: leave --until out to drain all of it",
                    )
            return dict.fromkeys(logs, offset)
        case AtTime(timestamp_ms):
            found = cluster.offset_at(topic, logs, timestamp_ms)
            return {n: min(log.end, _or(found[n], log.end)) for n, log in logs.items()}


def _offset_or_time(word: str) -> AtOffset | AtTime | None:
    if re.fullmatch(r"[0-9]{1,19}", word):
        return AtOffset(int(word))
    if not word.startswith("@"):
        return None
    try:
        moment = datetime.fromisoformat(word[1:])
        timestamp_ms = round(moment.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return AtTime(timestamp_ms) if timestamp_ms >= 0 else None


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def _list(topic: str, partitions: Sequence[int]) -> str:
    return ", ".join(f"{topic}/{number}" for number in partitions)
