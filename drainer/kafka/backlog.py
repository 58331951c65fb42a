"""The backlog: the frozen range of offsets per partition that a drain is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from drainer.core.listed import listed
from drainer.core.plan import OffsetPlan
from drainer.core.transaction import HeldBack, told_of
from drainer.errors import OffsetMissing, Refused, TopicMissing, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import Isolation
from drainer.kafka.times import first_since
from drainer.kafka.topic import LogBounds
from drainer.kafka.transactions import held_back

_TIME_HINT = "times are ISO 8601, local unless they say otherwise: @2026-11-20T18:00, @...T18:00Z"


class Otherwise(Enum):
    """Where a partition begins that has no committed offset."""

    REFUSED = ""
    EARLIEST = "earliest"
    END = "end"


@dataclass(frozen=True, slots=True)
class Committed:
    """From the group's committed offset; ``otherwise`` says what of partitions without one.

    With EARLIEST, a partition whose records at that offset are gone begins at the first that is
    left, too. Anything else refuses these.
    """

    otherwise: Otherwise = Otherwise.REFUSED

    def __str__(self) -> str:
        refuses = self.otherwise is Otherwise.REFUSED
        return "committed" if refuses else f"committed-or-{self.otherwise.value}"


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
    """From the first record, by offset, with this timestamp or a later one on; or until before it.

    Behind it all records belong, or none, whatever their timestamps. These are the producers' own
    or the broker's, as the topic's message.timestamp.type says.
    """

    timestamp_ms: int

    def __str__(self) -> str:
        return f"@{datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).isoformat()}"


From = Committed | Earliest | AtOffset | AtTime
Until = End | AtOffset | AtTime

_STARTS: tuple[From, ...] = (*map(Committed, Otherwise), Earliest())
_WORDS = {str(start): start for start in _STARTS}


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
    """

    partition: int
    start: int
    end: int
    committed: int | None
    log_start: int
    log_end: int
    leader_epoch: int | None

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
    """What a drain is about, as it was when the drain was planned.

    ``remarks`` are what a person should know of its bounds, a sentence each: what is lost, where it
    begins without a committed offset, and what is held back. ``held`` is what open transactions
    keep behind its end.
    """

    cluster_id: str
    topic: str
    topic_id: str
    isolation: Isolation
    partitions: Mapping[int, PartitionBacklog]
    remarks: tuple[str, ...] = ()
    held: tuple[HeldBack, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets it spans: an upper bound for its messages."""
        return sum(part.offsets for part in self.partitions.values())


def parse_from(text: str) -> From:
    """``committed``, with ``-or-earliest`` or ``-or-end``, ``earliest``, an offset, or ``@`` and a
    time.

    Raises:
        UsageError: when it is none of them.
    """
    word = text.strip()
    found: From | None = _WORDS.get(word) or _offset_or_time(word)
    if found is None:
        raise UsageError(
            f"--from {text!r} is neither {', '.join(_WORDS)}, an offset nor a time", hint=_TIME_HINT
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
    *,
    to_look: bool = False,
) -> Backlog:
    """Take the backlog of a group on a topic, or on some partitions of it.

    Without a group it is a range of the log, that may start anywhere. Who only wants ``to_look`` is
    not refused for want of a committed offset.

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
    if to_look and from_ == Committed():
        from_ = Committed(Otherwise.EARLIEST)
    info = cluster.topic(topic)
    numbers = _chosen(topic, info.partitions, partitions)
    for bound, option in ((from_, "--from"), (until, "--until")):
        if isinstance(bound, AtOffset) and len(numbers) > 1:
            raise UsageError(
                f"{option} {bound} can't be the offset of {len(numbers)} partitions",
                hint="choose one partition, or give a time (@...), which fits all of them",
            )
    if without := [number for number in numbers if not info.leaders[number]]:
        raise Refused(
            f"partition {listed(without)} of {topic} has no leader: its brokers are down",
            hint="bring a broker that holds it back, or drain the others with --partition",
        )
    committed: dict[int, int | None] = dict.fromkeys(numbers)
    if group is not None:
        committed = cluster.committed(group, topic, numbers)
    logs = cluster.log_bounds(topic, numbers, isolation)
    topic_id = info.topic_id
    starts = _starts(cluster, topic, topic_id, group, from_, committed, logs)
    ends = _ends(cluster, topic, topic_id, until, logs)
    taken = {
        number: PartitionBacklog(
            number,
            starts[number],
            max(starts[number], ends[number]),
            committed[number],
            logs[number].start,
            logs[number].end,
            logs[number].leader_epoch,
        )
        for number in numbers
    }
    remarks = () if group is None else _remarks(cluster, topic, group, from_, committed, logs)
    held = held_back(cluster, topic, topic_id, logs, {n: part.end for n, part in taken.items()})
    if held:
        remarks = (*remarks, told_of(held))
    return Backlog(cluster.cluster_id(), topic, topic_id, isolation, taken, remarks, held)


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
    topic_id: str,
    group: str | None,
    from_: From,
    committed: Mapping[int, int | None],
    logs: Mapping[int, LogBounds],
) -> dict[int, int]:
    for number, offset in committed.items():
        if offset is not None and offset > logs[number].high_watermark:
            raise Refused(
                f"group {group} committed offset {offset} on {topic}/{number}, but its log ends at"
                f" {logs[number].high_watermark}: the topic was truncated, or recreated",
                hint="find out which records are lost; then reset the group's offset",
            )
    if group is None and isinstance(from_, Committed):
        raise UsageError(
            "no group is named whose committed offset could be the start",
            hint="name one, or say --from earliest, --from OFFSET or --from @TIME",
        )
    match from_:
        case Committed(Otherwise.EARLIEST):
            return {n: max(log.start, committed[n] or 0) for n, log in logs.items()}
        case Committed(otherwise):
            may_end = otherwise is Otherwise.END
            return _committed_starts(cluster, topic, group or "", committed, logs, may_end=may_end)
        case Earliest():
            starts = {number: log.start for number, log in logs.items()}
        case AtOffset(offset):
            starts = dict.fromkeys(logs, offset)
        case AtTime(timestamp_ms):
            found = first_since(cluster, topic, topic_id, logs, timestamp_ms)
            starts = {number: _or(found[number], log.end) for number, log in logs.items()}
    for number, start in starts.items():
        log, known = logs[number], committed[number]
        if not log.start <= start <= log.high_watermark:
            raise Refused(
                f"--from {from_} is outside of {topic}/{number}, which holds offsets {log.start} to"
                f" {log.high_watermark}",
                hint="use --from committed-or-earliest",
            )
        if known is not None and start < known:
            raise Refused(
                f"--from {from_} is offset {start} on {topic}/{number}, before the offset {known}"
                f" that group {group} has committed: a drain never moves a group backwards",
                hint="say --from committed-or-earliest to begin where the group stands, or at the"
                " earliest record; to handle records again, drain with another group",
            )
    return starts


def _committed_starts(
    cluster: Cluster,
    topic: str,
    group: str,
    committed: Mapping[int, int | None],
    logs: Mapping[int, LogBounds],
    *,
    may_end: bool,
) -> dict[int, int]:
    empty = {number for number, log in logs.items() if log.start == log.end}
    missing = [n for n, offset in committed.items() if offset is None and n not in empty]
    if missing and not may_end:
        raise OffsetMissing(
            f"{_none_committed(cluster, topic, group, missing, len(committed))}: where shall the"
            " drain start?",
            hint="check the group's name, or say where these begin: --from committed-or-earliest,"
            " committed-or-end, earliest, OFFSET or @TIME",
        )
    starts = {number: _or(offset, logs[number].end) for number, offset in committed.items()}
    if lost := _lost(topic, group, starts, logs):
        raise Refused(lost, hint="to drain what is left, say --from committed-or-earliest")
    return starts


def _lost(
    topic: str, group: str, committed: Mapping[int, int | None], logs: Mapping[int, LogBounds]
) -> str | None:
    lost = {
        number: (offset, logs[number].start)
        for number, offset in committed.items()
        if offset is not None and offset < logs[number].start
    }
    if not lost:
        return None
    count = sum(start - offset for offset, start in lost.values())
    where = [
        f"{topic}/{n} (offsets {offset} to {start - 1})" for n, (offset, start) in lost.items()
    ]
    return (
        f"retention has deleted up to {count:,} record{'' if count == 1 else 's'} that group"
        f" {group} never handled: {listed(where)}"
    )


def _remarks(
    cluster: Cluster,
    topic: str,
    group: str,
    from_: From,
    committed: Mapping[int, int | None],
    logs: Mapping[int, LogBounds],
) -> tuple[str, ...]:
    lost = _lost(topic, group, committed, logs)
    said = [] if lost is None else [lost]
    without = [n for n, log in logs.items() if committed[n] is None and log.start < log.end]
    if without and isinstance(from_, Committed):
        begins = "the earliest record" if from_.otherwise is Otherwise.EARLIEST else "the end"
        none = _none_committed(cluster, topic, group, without, len(logs))
        said.append(f"{none}: the backlog begins at {begins} there")
    return tuple(said)


def _none_committed(
    cluster: Cluster, topic: str, group: str, missing: Sequence[int], of: int
) -> str:
    if len(missing) < of:
        return (
            f"group {group} has no committed offset on {len(missing):,} of {of:,} partitions"
            f" ({_list(topic, missing)})"
        )
    near = [n for n in cluster.groups_with_offsets(topic, missing, group) if n != group]
    known = f" (groups with offsets on it: {', '.join(near)})" if near else ""
    return f"group {group} has no committed offset on {topic}{known}"


def _ends(
    cluster: Cluster, topic: str, topic_id: str, until: Until, logs: Mapping[int, LogBounds]
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
            found = first_since(cluster, topic, topic_id, logs, timestamp_ms)
            return {n: _or(found[n], log.end) for n, log in logs.items()}


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
    return listed([f"{topic}/{number}" for number in partitions])


def remaining(cluster: Cluster, plan: OffsetPlan) -> Backlog:
    """What of a plan's backlog is still to be drained, but for what finished past a watermark."""
    logs = cluster.log_bounds(plan.topic, tuple(plan.partitions), cluster.settings.isolation)
    return Backlog(
        cluster_id=plan.cluster_id,
        topic=plan.topic,
        topic_id=plan.topic_id,
        isolation=cluster.settings.isolation,
        partitions={
            number: PartitionBacklog(
                number,
                min(plan.watermark(number), part.end),
                part.end,
                part.committed,
                logs[number].start,
                logs[number].end,
                part.leader_epoch,
            )
            for number, part in plan.partitions.items()
        },
    )
