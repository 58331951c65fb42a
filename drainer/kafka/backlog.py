"""The backlog of a drain: the range of offsets per partition, frozen when it is planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from drainer.errors import OffsetMissing, OffsetsPending, Passing, Refused, UsageError
from drainer.kafka.cluster import Cluster, LogBounds, TopicInfo
from drainer.kafka.settings import Isolation
from drainer.kafka.spans import first_messages
from drainer.model.listed import counted, listed
from drainer.model.plan import OffsetPlan, OpenTransaction, describe_open_transactions
from drainer.model.terms import LAST_MS, TimeRange, time_text

READER = "drainer-times"
# The clocks of brokers may differ by this much. So when another broker becomes the leader of a
# partition, new records may have earlier times than the records before them.
CLOCK_SKEW_MS = 3_600_000
_UNTIL_HINT = (
    "Give --until OFFSET. To handle exactly the records of some times, add --no-commit and --from"
    " @TIME."
)
_TIME_HINT = "Write a time as @2026-11-20T18:00 (local) or @2026-11-20T18:00Z (UTC)."


@dataclass(frozen=True, slots=True)
class Bound:
    """The beginning or the end of a backlog: a word, an offset or a time.

    An end is the first offset that is not part of the backlog. A time stands for the record with
    the lowest offset that has this timestamp or a later one. The topic's message.timestamp.type
    decides whether producers or brokers set the timestamps.
    """

    word: str = ""  # One of the words of the constants below.
    offset: int | None = None
    time_ms: int | None = None  # In milliseconds since 1970.
    length: int | None = None  # An end that is at most this many offsets behind the beginning.

    def __str__(self) -> str:
        if self.time_ms is not None:
            return time_text(self.time_ms)
        return self.word or (f"+{self.length}" if self.length else str(self.offset))


# These three stand for the group's committed offset. If a partition has none, drainer refuses
# COMMITTED. COMMITTED_OR_EARLIEST then begins at the first record, and COMMITTED_OR_END at the end
# of the log. COMMITTED_OR_EARLIEST also begins at the first record if the record at the committed
# offset is deleted.
COMMITTED = Bound("committed")
COMMITTED_OR_EARLIEST = Bound("committed-or-earliest")
COMMITTED_OR_END = Bound("committed-or-end")
EARLIEST = Bound("earliest")  # The first record that retention has not deleted.
END = Bound("end")  # The end of the log when the drain is planned.

OF_GROUPS = (COMMITTED, COMMITTED_OR_EARLIEST, COMMITTED_OR_END)


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """The backlog of one partition: the offsets ``[start, end)``, some of which may be holes."""

    partition: int
    start: int
    end: int  # The first offset that is not part of the backlog.
    committed: int | None  # The group's committed offset when it was looked up; None without one.
    log_start: int
    log_end: int  # The offset after the last record that the isolation level shows.
    # The leader epoch of the record before ``log_end``; None when the broker does not know it.
    leader_epoch: int | None

    @property
    def offsets(self) -> int:
        """The number of offsets, which is an upper bound for the number of messages."""
        return self.end - self.start

    @property
    def skipped_before(self) -> int:
        """The number of offsets before the start that neither the group nor this drain handles."""
        return max(0, self.start - max(self.log_start, self.committed or 0))


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets of a drain, as they were when it was planned.

    ``remarks`` are sentences for a person about the bounds: which records are lost, where the
    backlog begins without a committed offset, and which open transactions it ends at.
    """

    cluster_id: str
    topic: str
    topic_id: str
    isolation: Isolation
    partitions: Mapping[int, PartitionBacklog]
    remarks: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()  # Sentences for a person on how times were turned into offsets.
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def offsets(self) -> int:
        """The number of offsets, which is an upper bound for the number of messages."""
        return sum(part.offsets for part in self.partitions.values())


def parse_from(text: str) -> Bound:
    """Parse --from: a word such as ``committed-or-earliest``, an offset, or ``@`` and a time.

    Raises UsageError for anything else.
    """
    return _parse("--from", text, (*OF_GROUPS, EARLIEST))


def parse_until(text: str) -> Bound:
    """Parse --until: ``end``, an offset, ``+`` and a number of offsets, or ``@`` and a time.

    Raises UsageError for anything else.
    """
    if re.fullmatch(r"\+0*[1-9][0-9]{0,17}", text.strip()):
        return Bound(length=int(text))
    return _parse("--until", text, (END,))


@dataclass(frozen=True, slots=True)
class DrainRange:
    """The range that a drain handles: offsets, or times if it commits nothing.

    Timestamps need not rise with offsets, so between the records of a range of times there may be
    records of other times. A committed offset stands for all records before it, so a drain that
    commits has to handle those as well. Only a drain without commits selects records by their
    times, and skips the others.

    Raises UsageError when a drain without commits would begin where the group stands, or when
    ``from_`` is a time that is not before ``until``.
    """

    from_: Bound = COMMITTED
    until: Bound = END
    commits: bool = True

    def __post_init__(self) -> None:
        if not self.commits and self.from_ in OF_GROUPS:
            raise UsageError(
                f"--no-commit drains a range again, and --from {self.from_} is where the group"
                " stands",
                hint="Name the range: --from @TIME --until @TIME, or offsets.",
            )
        begin_ms, end_ms = self.from_.time_ms, self.until.time_ms
        if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
            raise UsageError(
                f"--from {self.from_} is not before --until {self.until}",
                hint="Give an earlier --from, or a later --until.",
            )

    @property
    def times(self) -> TimeRange | None:
        """The times of the records to select; None if all records in the range are selected."""
        begin_ms, end_ms = self.from_.time_ms, self.until.time_ms
        if self.commits or (begin_ms is None and end_ms is None):
            return None
        return TimeRange(begin_ms, end_ms)

    def freeze(
        self,
        cluster: Cluster,
        topic: str,
        group: str,
        partitions: Iterable[int] | None = None,
        *,
        only_show: bool = False,
        new_group: bool = False,
    ) -> Backlog:
        """Look up the backlog of this range, as the function ``freeze`` does.

        A range of times becomes all offsets that may have records of these times. Refused is also
        raised when a drain that commits would end at a time, and producers set the timestamps,
        because records of earlier times may then follow any offset.
        """
        take = partial(
            freeze,
            *(cluster, topic, group if self.commits else None, partitions, self.from_),
            only_show=only_show,
            new_group=new_group,
        )
        until = self.until
        if until.time_ms is not None and not self.commits:
            later = Bound(time_ms=min(until.time_ms + CLOCK_SKEW_MS, LAST_MS))
            until = later if _brokers_set_times(cluster, topic) else END
        found = take(until)
        of_broker = until.time_ms is None or _brokers_set_times_after(cluster, found)
        if not of_broker and not self.commits:
            until, found = END, take(END)
        elif not of_broker:
            why = (
                f"a drain that commits can't end at --until {until}: producers set the times of"
                f" {topic} (or this user may not see that brokers do), so earlier records may"
                " follow any offset"
            )
            if not only_show:
                raise Refused(why, hint=_UNTIL_HINT)
            found = replace(found, remarks=(*found.remarks, f"{why}: a drain refuses that"))
        return replace(found, checks=self._checks(found, until))

    def _checks(self, found: Backlog, until: Bound) -> tuple[str, ...]:
        if self.times is not None:
            end = "the end of the log" if until == END else str(until)
            offsets = counted(found.offsets, "offset")
            return (f"to find all records of these times, it reads {offsets}, up to {end}",)
        checks = []
        if self.from_.time_ms is not None:
            checks.append(
                f"it starts at the first offset of {self.from_} or later: earlier records that"
                " follow it are handled, too"
            )
        if until.time_ms is not None:
            checks.append(f"it ends at the first offset of {until} or later")
        return tuple(checks)


def freeze(
    cluster: Cluster,
    topic: str,
    group: str | None,
    partitions: Iterable[int] | None = None,
    from_: Bound = COMMITTED,
    until: Bound = END,
    *,
    only_show: bool = False,
    new_group: bool = False,
) -> Backlog:
    """Look up the backlog of a group on a topic, or on some partitions of it.

    Args:
        group: if it is None, the backlog is a range of the log that may start anywhere.
        partitions: all partitions unless given.
        only_show: the caller shows the backlog, and does not drain it. Then a missing committed
            offset, or a start below it, is a remark instead of an error.
        new_group: the group is new, so there is no remark that it has no committed offset.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        OffsetMissing: when it should start at a committed offset, and there is none.
        Refused: when records that the group never handled are deleted, the topic is not the one
            that the group read, the range is outside of the log, the group would move backwards, a
            partition has no leader, or brokers may be wrong about a time.
        UsageError: when one offset is given for several partitions, or the start is a committed
            offset and there is no group.
    """
    isolation = cluster.settings.isolation
    if only_show and from_ == COMMITTED:
        from_ = COMMITTED_OR_EARLIEST
    if group is None and from_ in OF_GROUPS:
        raise UsageError(
            "to start at a committed offset, drainer needs a group",
            hint="Name a group, or add --from earliest, --from OFFSET or --from @TIME.",
        )
    info = cluster.topic(topic)
    numbers = info.chosen(partitions)
    _ensure_readable(info, numbers, {"--from": from_, "--until": until})
    committed, pending = _committed(cluster, topic, group, numbers, only_show=only_show)
    logs = cluster.log_bounds(topic, numbers, isolation)
    bounds = _Bounds(cluster, topic, group, from_, committed, logs)
    remarks = [*pending, *bounds.lost(), *([] if new_group else bounds.uncommitted())]
    starts = bounds.offsets(from_, committed if from_ in OF_GROUPS else {})
    ends = bounds.offsets(until, {})
    if until.length is not None:
        ends = {n: min(starts[n] + until.length, log.end) for n, log in logs.items()}
    for number, log in logs.items():
        bounds.ensure_start(number, starts[number])
        if until.offset is not None and until.offset > log.end:
            raise Refused(
                f"--until {until} is beyond the end of {topic}/{number}, offset {log.end}",
                hint="Remove --until to read to the end.",
            )
    if backwards := bounds.backwards(starts):
        if not only_show:
            raise Refused(
                f"{backwards}: a drain never moves a group backwards",
                hint="Use --from committed-or-earliest. To handle records again, use another"
                " group.",
            )
        remarks.append(f"{backwards}: a drain refuses that")
    ends = {n: max(starts[n], end) for n, end in ends.items()}
    taken = {
        n: PartitionBacklog(
            n, starts[n], ends[n], committed[n], log.start, log.end, log.leader_epoch
        )
        for n, log in logs.items()
    }
    if left_out := open_transactions(topic, logs, ends):
        remarks.append(describe_open_transactions(left_out))
    return Backlog(
        *(cluster.cluster_id, topic, info.topic_id, isolation, taken, tuple(remarks)),
        open_transactions=left_out,
    )


def _committed(
    cluster: Cluster, topic: str, group: str | None, numbers: Sequence[int], *, only_show: bool
) -> tuple[dict[int, int | None], list[str]]:
    if group is None:
        return dict.fromkeys(numbers), []
    try:
        return cluster.committed(group, topic, numbers), []
    except OffsetsPending as error:
        if not only_show:
            raise
        return dict(error.offsets), [f"{error}. {error.hint}"]


def remaining(cluster: Cluster, plan: OffsetPlan) -> Backlog:
    """Return the backlog of a plan from its watermarks on.

    It includes the messages above a watermark that have finished already.
    """
    isolation = cluster.settings.isolation
    logs = cluster.log_bounds(plan.terms.topic, tuple(plan.account.partitions), isolation)
    left = {
        n: PartitionBacklog(
            *(n, min(plan.account.watermark(n), part.end), part.end, part.committed),
            *(logs[n].start, logs[n].end, part.leader_epoch),
        )
        for n, part in plan.account.partitions.items()
    }
    return Backlog(plan.terms.cluster_id, plan.terms.topic, plan.terms.topic_id, isolation, left)


def open_transactions(
    topic: str, logs: Mapping[int, LogBounds], ends: Mapping[int, int]
) -> tuple[OpenTransaction, ...]:
    """Return the open transactions at which the backlog has to end, in the order of partitions.

    ``logs`` are the bounds of the logs as the isolation level shows them, and ``ends`` the ends of
    the backlog, both by partition.
    """
    return tuple(
        OpenTransaction(topic, number, log.end, log.high_watermark - log.end)
        for number, log in sorted(logs.items())
        if ends[number] == log.end < log.high_watermark
    )


def _brokers_set_times(cluster: Cluster, topic: str) -> bool:
    """Return whether brokers set the times of new records, and reliably find records by time."""
    timestamps = cluster.topic_config(topic).get("message.timestamp.type")
    return timestamps == "LogAppendTime" and not may_misplace_times(cluster, topic)


def _brokers_set_times_after(cluster: Cluster, found: Backlog) -> bool:
    """Return whether brokers set the times of all records from the end of a backlog on.

    The topic's setting may have been changed since older records were written, and producers may
    have set their times. So the first record after the end of each partition is read as well.
    """
    ends = {n: (part.end, part.log_end) for n, part in found.partitions.items()}
    heads = first_messages(cluster.settings, found.topic, found.topic_id, READER, ends)
    of_broker = all(each.has_time_of_broker for each in heads.values())
    return of_broker and _brokers_set_times(cluster, found.topic)


def may_misplace_times(cluster: Cluster, topic: str) -> bool:
    """Return whether brokers may wrongly report that no record has a given time or a later one.

    The time index of a segment still has the times of records that compaction has removed. A broker
    looks only into the first segment whose index reaches the time, and may find no record there.
    """
    return "compact" in cluster.topic_config(topic).get("cleanup.policy", "compact")


def _parse(option: str, text: str, words: Sequence[Bound]) -> Bound:
    given = text.strip()
    for bound in words:
        if given == bound.word:
            return bound
    if re.fullmatch(r"[0-9]{1,19}", given):
        return Bound(offset=int(given))
    if given.startswith("@"):
        try:
            time_ms = round(datetime.fromisoformat(given[1:]).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            time_ms = -1
        if 0 <= time_ms <= LAST_MS:
            return Bound(time_ms=time_ms)
    known = ", ".join(map(str, words)) + (", +N" if END in words else "")
    raise UsageError(
        f"{option} {text!r} is not one of {known}, an offset or a time", hint=_TIME_HINT
    )


def _ensure_readable(info: TopicInfo, numbers: Sequence[int], bounds: Mapping[str, Bound]) -> None:
    for option, bound in bounds.items():
        if bound.offset is not None and len(numbers) > 1:
            each = f"--until +{bound} for that many offsets of each"
            raise UsageError(
                f"{option} {bound} is one offset, but {len(numbers)} partitions are read",
                hint="Choose one of them with --partition, or write"
                f" {each if option == '--until' else 'a time: --from @TIME'}.",
            )
    if without := [number for number in numbers if not info.leaders[number]]:
        raise Passing(
            f"partition {listed(without)} of {info.name} has no leader: its brokers are down",
            hint="Start one of its brokers, or choose the others with --partition.",
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The facts that decide where a backlog begins and ends."""

    cluster: Cluster
    topic: str
    group: str | None
    from_: Bound
    committed: Mapping[int, int | None]
    logs: Mapping[int, LogBounds]

    def offsets(self, bound: Bound, committed: Mapping[int, int | None]) -> dict[int, int]:
        logs = self.logs
        if bound.offset is not None:
            return dict.fromkeys(logs, bound.offset)
        if bound.time_ms is not None:
            found = self.cluster.offset_at(self.topic, logs, bound.time_ms)
            unnamed = [n for n, log in logs.items() if found[n] is None and log.start < log.end]
            if unnamed and may_misplace_times(self.cluster, self.topic):
                raise Refused(
                    f"the brokers report no record at {bound} or later on partition"
                    f" {listed(unnamed)} of {self.topic}, but may be wrong: it is compacted, or"
                    " this user may not see that",
                    hint="Give an offset instead of a time, or --until end.",
                )
            # The record that was found may come after the beginning of an open transaction. The
            # isolation level does not show it yet, so the backlog ends before it.
            return {
                n: log.end if (at := found[n]) is None else min(at, log.end)
                for n, log in logs.items()
            }
        if bound in (EARLIEST, COMMITTED_OR_EARLIEST):
            return {n: max(committed.get(n) or 0, log.start) for n, log in logs.items()}
        return {n: log.end if (at := committed.get(n)) is None else at for n, log in logs.items()}

    def ensure_start(self, number: int, start: int) -> None:
        place, committed, log = f"{self.topic}/{number}", self.committed[number], self.logs[number]
        if committed is not None and committed > log.high_watermark:
            raise Refused(
                f"group {self.group} has committed offset {committed} on {place}, but its log ends"
                f" at {log.high_watermark}: someone truncated or recreated the topic",
                hint="Find out which records are lost, then reset the group's offset.",
            )
        if not log.start <= start <= log.high_watermark:
            raise Refused(
                f"--from {self.from_} is outside {place}, which has offsets {log.start} to"
                f" {log.high_watermark}",
                hint="Use --from committed-or-earliest.",
            )

    def backwards(self, starts: Mapping[int, int]) -> str | None:
        # Describe a partition in which the range would begin below the group's offset, if any.
        for number, offset in self.committed.items():
            if offset is not None and starts[number] < offset:
                return (
                    f"--from {self.from_} is offset {starts[number]} on {self.topic}/{number},"
                    f" below the committed offset {offset} of group {self.group}"
                )
        return None

    def uncommitted(self) -> list[str]:
        # Return a remark about the partitions without a committed offset, and about where the
        # backlog begins in them. If the group has none at all, its name may be wrong.
        logs, topic, group = self.logs, self.topic, self.group
        missing = [
            n for n, log in logs.items() if self.committed[n] is None and log.start < log.end
        ]
        nothing = set(self.committed.values()) == {None}
        begins = self.from_ in OF_GROUPS and bool(missing)
        if group is None or not (nothing or begins):
            return []
        named = listed([f"{topic}/{number}" for number in missing])
        where = f"{len(missing):,} of {len(logs):,} partitions ({named})"
        what = f"has no committed offset on {topic if nothing else where}"
        if nothing and self.cluster.group(group, right="DESCRIBE").state == "dead":
            what = "does not exist"
        if begins and self.from_ != COMMITTED:
            at = "the end" if self.from_ == COMMITTED_OR_END else "the earliest record"
            what += f": the backlog starts at {at}"
        remark = self.cluster.missing(group, what) if nothing else f"group {group} {what}"
        if begins and self.from_ == COMMITTED:
            raise OffsetMissing(
                remark,
                hint="Check the group's name, or choose a start: --from committed-or-earliest,"
                " committed-or-end, earliest, OFFSET or @TIME.",
            )
        return [remark]

    def lost(self) -> list[str]:
        # Return a remark about records that retention deleted before the group handled them.
        lost = {
            n: (offset, self.logs[n].start)
            for n, offset in self.committed.items()
            if offset is not None and offset < self.logs[n].start
        }
        if not lost:
            return []
        count = counted(sum(start - offset for offset, start in lost.values()), "record")
        where = [
            f"{self.topic}/{n} (offsets {offset} to {start - 1})"
            for n, (offset, start) in lost.items()
        ]
        remark = (
            f"retention deleted up to {count} that group {self.group} never handled:"
            f" {listed(where)}"
        )
        if self.from_ in (COMMITTED, COMMITTED_OR_END):
            raise Refused(remark, hint="To drain the rest, use --from committed-or-earliest.")
        return [remark]
