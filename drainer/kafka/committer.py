"""The committer of a running drain: it overwrites nobody else's commits, and checks the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass

from drainer.errors import BrokerUnreachable, CommitDelayed, OffsetMoved
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.group import shown_offset
from drainer.kafka.loss import LogCheck, raised_as_running, topic_gone
from drainer.model.plan import OffsetPlan

CALL_TIMEOUT_S = 5.0  # The timeout of each request.


@dataclass(eq=False)
class GroupCommitter:
    """Moves a group's committed offsets forward, and checks that nobody else moves them.

    Kafka accepts commits from outside of a group only while the group has no members. It does not
    fence one such committer against another. So before and after each write, the committer reads
    the offset, which must be the one that this drain wrote. If the answer to a write is lost, both
    the old and the new offset are allowed from then on.

    Brokers drop the offsets of a group that has been empty for a long time. The committer then
    writes them again.

    Attributes:
        is_sure: returns whether this drain still holds the lock. It is called right before the
            write, because the process may have been suspended since the read.
        observe: called with the topic at each check.
    """

    cluster: Cluster
    group: str
    topic: str
    is_sure: Callable[[], bool] = lambda: True
    timeout_s: float = CALL_TIMEOUT_S
    observe: Callable[[TopicInfo], None] = lambda topic: None

    def __post_init__(self) -> None:
        self._in_doubt: dict[int, set[int]] = {}
        self._log_check = LogCheck(self.cluster, self.topic, self.group)

    def commit_plan(self, plan: OffsetPlan) -> dict[int, int]:
        """Check the topic, and commit the watermarks of a plan, unless its drain commits nothing.

        Returns and raises what ``commit`` and ``check`` do.
        """
        self.check(plan.terms.topic_id, plan.account.log_ends)
        if not plan.terms.commits:
            return {}
        partitions = plan.account.partitions.items()
        return self.commit(plan.account.watermarks, {n: {part.committed} for n, part in partitions})

    def commit(
        self, offsets: Mapping[int, int], expected: Mapping[int, Set[int | None]]
    ) -> dict[int, int]:
        """Commit an offset for each partition: that of the next message to handle.

        ``expected`` has, by partition, the offsets that the group may have before the commit: the
        offset that this drain wrote last, or the one from before the drain (None if it had none).
        If there is no offset although one is expected, it has expired. An offset is not written if
        it, or a higher one, is committed already.

        Returns the committed offsets by partition.

        Raises:
            OffsetMoved: when another offset is found, before the write or after it. Nothing more is
                written then.
            GroupJoined: when the group has members; nothing is written then.
            TopicGone: when the topic does not exist any more.
            CommitDelayed: when no answer came in time; try again later.
            Interrupted: when this user may not commit.
        """
        with self._raised_as_running():
            found = self._read(offsets)
            for partition, offset in found.items():
                allowed = set(expected[partition]) | self._in_doubt.get(partition, set())
                if offset is None and None not in allowed:
                    # The offset may be gone because the topic was deleted. Then this raises
                    # TopicMissing.
                    self.cluster.topic(self.topic)
                elif offset not in allowed:
                    raise self._moved(partition, offset, allowed, "before a commit")
            moves = {p: o for p, o in offsets.items() if (was := found[p]) is None or o > was}
            if not moves:
                known = {p: o for p, o in found.items() if o is not None}
                if known:
                    some = next(iter(known.items()))
                    self.cluster.ensure_no_members(self.group, self.topic, some, self.timeout_s)
                return known
            if not self.is_sure():
                raise CommitDelayed("the lock on the group is not confirmed any more")
            # From now on, a read may find each of these offsets, whatever the answer to the write.
            for partition, wrote in moves.items():
                self._in_doubt.setdefault(partition, set()).add(wrote)
            self.cluster.alter_committed(self.group, self.topic, moves, self.timeout_s)
            found |= (read_back := self._read(moves))
            for partition, wrote in moves.items():
                if read_back[partition] is None:
                    # The broker has just dropped the expired offsets of the group, and the new one
                    # with them.
                    raise CommitDelayed(f"{self.topic}/{partition}: offset {wrote} expired at once")
                if read_back[partition] != wrote:
                    moved = self._moved(partition, read_back[partition], {wrote}, "after a commit")
                    moved.left = moves
                    raise moved
                self._in_doubt[partition].discard(wrote)
        return {p: o for p, o in found.items() if o is not None}

    def check(self, topic_id: str, log_ends: Mapping[int, tuple[int, int | None]]) -> None:
        """Ensure that the topic is still the one for which this drain was planned.

        Its logs must still have the records up to ``log_ends``: the end of the backlog and the
        leader epoch when it was looked up, by partition.

        Raises TopicGone when the topic was deleted or recreated; LogCut when a log lost records of
        the backlog, handled or not; CommitDelayed when no answer came in time; and Interrupted when
        this user may not describe the topic.
        """
        with self._raised_as_running():
            found = self.cluster.topic(self.topic)
            if found.topic_id != topic_id:
                what = f"was deleted and recreated (id {found.topic_id}, not {topic_id})"
                raise topic_gone(self.topic, what)
            self.observe(found)
            self._log_check.check(log_ends, self.timeout_s)

    def _read(self, partitions: Mapping[int, int]) -> dict[int, int | None]:
        return self.cluster.committed(self.group, self.topic, partitions, self.timeout_s)

    @contextmanager
    def _raised_as_running(self) -> Iterator[None]:
        try:
            with raised_as_running(self.topic):
                yield
        except BrokerUnreachable as error:
            raise CommitDelayed(str(error), hint=error.hint) from error

    def _moved(
        self, partition: int, found: int | None, expected: Set[int | None], when: str
    ) -> OffsetMoved:
        wanted = " or ".join(sorted(shown_offset(offset) for offset in expected))
        return OffsetMoved(
            f"group {self.group} has {shown_offset(found)} committed on {self.topic}/{partition}"
            f" {when}, but this drain left {wanted}: something else commits for this group",
            hint="Find and stop the other writer: a consumer, a drain or an offset reset. If the"
            " move was a mistake, put the group back and resume.",
        )
