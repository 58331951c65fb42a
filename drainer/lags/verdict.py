"""The verdict on a group: how far it is behind, and whether it catches up before records expire.

Two looks at the offsets a few seconds apart show how fast a group commits, and how fast records
arrive. All else follows from them, from the age of the first record that the group has not handled,
and from the retention of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from drainer.insight.survey import ItemShare
from drainer.model.option import Lag

HOT_SHARE = 0.5  # A partition with this share of a group's backlog is named.
HOT_BEHIND = 100  # In a smaller backlog, a large share may be chance.
# As few offsets as this may be nothing but markers of transactions: each producer leaves one.
MARKERS_MOST = 10


class Verdict(StrEnum):
    """What becomes of a partition or a group at its present pace. The worst comes first."""

    LOSING = "losing records"  # Retention deletes records before the group reads them.
    NEVER = "not catching up"  # At its present pace, the group never will.
    UNKNOWN = "unknown"  # Something that decides this could not be read.
    CATCHING_UP = "catching up"
    # By the second look, the group has handled all that was there at the first one.
    KEEPING_UP = "keeping up"


_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a partition: the group's committed offset, and the offset after the last record."""

    committed: int | None
    end: int
    committed_at_s: float
    end_at_s: float


@dataclass(frozen=True, slots=True)
class Head:
    """The first record that a group has not handled. A figure that is not known is None.

    Attributes:
        kept_s: seconds until retention may delete it by its age.
        is_there: False if only transaction markers and deleted records are left; None if nothing
            could be read.
    """

    age_s: float | None = None
    kept_s: float | None = None
    is_there: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group on one partition. A figure that is not known is None.

    Attributes:
        committed: the group's committed offset; None if it has none there.
        reader: the member that reads the partition; None if no member does.
        behind: offsets that the group has not handled. Without a committed offset, this is all that
            the log has.
        age_s: age of the first record that the group has not handled.
        lost: offsets that were deleted before the group handled them.
        commits_per_s, arrivals_per_s: the pace of the group, and that of the producers.
        done_in_s: seconds until the group has caught up; None if it never does at this pace.
        lost_in_s: seconds until retention deletes a record before the group reads it at this pace.
        problem: why the lag or its verdict is not known; empty if both are.
    """

    topic: str
    partition: int
    verdict: Verdict
    committed: int | None = None
    reader: str | None = None
    behind: int | None = None
    age_s: float | None = None
    lost: int = 0
    commits_per_s: float | None = None
    arrivals_per_s: float | None = None
    done_in_s: float | None = None
    lost_in_s: float | None = None
    problem: str = ""

    def is_within(self, most: Lag) -> bool:
        """Return whether the lag is known, and no more than ``most``."""
        if most.seconds is None:
            return self.behind is not None and self.behind <= (most.messages or 0)
        return self.behind == 0 or (self.age_s is not None and self.age_s <= most.seconds)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group on all partitions of its topics, the worst partition first.

    Its topics are those on which it has committed, and those that its members read.

    Attributes:
        state: ``stable``, ``empty`` and others; ``unknown`` for a streams or share group.
        members: the number of its members.
        behind, lost, commits_per_s, arrivals_per_s: the sums over partitions where they are known.
        age_s: the age of the oldest record that was read.
        done_in_s, lost_in_s: those of the partition that is done last or loses records first.
        hot: the partition that has most of the backlog, and its share.
        untouched: partitions with records where the group has never committed.
        unread: partitions with records that no member reads.
        unknown: partitions whose lag or verdict is not known.
        problem: why the group's offsets are not known; empty if they are.
    """

    group: str
    state: str
    members: int
    verdict: Verdict
    behind: int
    lost: int
    commits_per_s: float
    arrivals_per_s: float
    age_s: float | None
    done_in_s: float | None
    lost_in_s: float | None
    hot: ItemShare | None
    untouched: int
    unread: int
    unknown: int
    problem: str
    partitions: tuple[PartitionLag, ...]

    def is_within(self, most: Lag) -> bool:
        """Return whether the lags on all partitions are known, and no more than ``most``."""
        return not self.problem and all(part.is_within(most) for part in self.partitions)


def race(behind: int, head: Head, commits_per_s: float) -> float | None:
    """Return seconds until retention deletes a record before the group reads it; None for never.

    The ages of records are assumed to fall evenly, from that of the first one to 0. While the group
    reads a record, the first one that is left becomes younger by ``age_s / behind``. While a second
    passes, it becomes a second older.
    """
    if head.kept_s is None or head.age_s is None or not behind:
        return None
    older_per_s = 1 - commits_per_s * head.age_s / behind
    return head.kept_s / older_per_s if older_per_s > 0 else None


def partition_lag(
    place: tuple[str, int],
    looks: tuple[Look, Look],
    head: Head,
    log_start: int,
    reader: str | None = None,
) -> PartitionLag:
    """Judge the lag on a partition by two looks. ``log_start`` is where the log begins now."""
    first, last = looks
    before, position = (max(log_start, each.committed or 0) for each in looks)
    if before > first.end:
        why = f"the group is at offset {before}, beyond the end of the log, {first.end}"
        return PartitionLag(*place, Verdict.UNKNOWN, first.committed, reader, problem=why)
    commits_per_s = _pace(position - before, last.committed_at_s - first.committed_at_s)
    arrivals_per_s = _pace(last.end - first.end, last.end_at_s - first.end_at_s)
    # Without a record before the first end, only records that arrived after it are left.
    behind = last.end - (max(position, first.end) if head.is_there is False else position)
    gain, done_in_s, lost_in_s, problem = commits_per_s - arrivals_per_s, None, None, ""
    if position >= first.end or head.is_there is False:
        verdict, done_in_s = Verdict.KEEPING_UP, 0.0
    else:
        done_in_s = behind / gain if gain > 0 else None
        verdict = Verdict.NEVER if done_in_s is None else Verdict.CATCHING_UP
        lost_in_s = race(behind, head, commits_per_s)
        if lost_in_s is not None and (done_in_s is None or lost_in_s < done_in_s):
            verdict = Verdict.LOSING
        elif head.is_there is None and not commits_per_s and behind <= MARKERS_MOST:
            verdict, problem = Verdict.UNKNOWN, "nothing but markers of transactions may be left"
    return PartitionLag(
        *place,
        verdict,
        last.committed,
        reader,
        max(0, behind),
        age_s=head.age_s if behind else None,
        lost=0 if last.committed is None else max(0, log_start - last.committed),
        commits_per_s=commits_per_s,
        arrivals_per_s=arrivals_per_s,
        done_in_s=done_in_s,
        lost_in_s=lost_in_s if verdict is Verdict.LOSING else None,
        problem=problem,
    )


def group_lag(
    name: str, state: str, members: int, parts: Sequence[PartitionLag], problem: str = ""
) -> GroupLag:
    """Judge a group by its partitions. The worst partition decides its verdict."""

    def of(field: str, pick: Callable[..., Any], empty: Any = None) -> Any:
        known = [each for part in parts if (each := getattr(part, field)) is not None]
        return pick(known) if known else empty

    ranked = worst_first(parts)
    if not parts and not problem:
        problem = "it has no committed offsets and no readers, as far as this user may see"
    verdict = ranked[0].verdict if ranked else Verdict.UNKNOWN
    behind, hottest = of("behind", sum, 0), max(parts, key=lambda p: p.behind or 0, default=None)
    hot = None
    if hottest is not None and len(parts) > 1 and behind >= HOT_BEHIND:
        share = (hottest.behind or 0) / behind
        place = f"{hottest.topic}/{hottest.partition}"
        hot = ItemShare(place, hottest.behind or 0, share) if share >= HOT_SHARE else None
    is_done = all(part.done_in_s is not None for part in parts) and not problem
    return GroupLag(
        *(name, state, members),
        min(verdict, Verdict.UNKNOWN, key=_RANKS.__getitem__) if problem else verdict,
        *(behind, of("lost", sum, 0), of("commits_per_s", sum, 0.0)),
        *(of("arrivals_per_s", sum, 0.0), of("age_s", max)),
        of("done_in_s", max, 0.0) if is_done else None,
        of("lost_in_s", min),
        hot,
        untouched=sum(part.committed is None and bool(part.behind) for part in parts),
        unread=sum(part.reader is None and bool(part.behind) for part in parts),
        unknown=sum(part.verdict is Verdict.UNKNOWN for part in parts),
        problem=problem,
        partitions=tuple(ranked),
    )


def worst_first(found: Sequence[Any]) -> list[Any]:
    """Return groups or partitions by their verdicts, and then by how far they are behind."""
    return sorted(found, key=lambda each: (_RANKS[each.verdict], -(each.behind or 0)))


def _pace(offsets: int, seconds: float) -> float:
    return max(0, offsets) / seconds if seconds > 0 else 0.0
