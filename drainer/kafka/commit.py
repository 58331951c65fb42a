"""Committing for a group without being its member, so that nobody's commit is overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from drainer.core import handover
from drainer.core.progress import Range
from drainer.errors import (
    BrokerUnreachable,
    CommitDelayed,
    GroupActive,
    GroupJoined,
    Interrupted,
    OffsetMoved,
    Refused,
    TopicGone,
    TopicMissing,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.offsets import CommittedOffset

CALL_TIMEOUT_S = 5.0  # of each of the three calls that a commit is


def metadata_beside(
    found: CommittedOffset | None,
    offset: int,
    finished: Sequence[Range],
    bytes_most: int = handover.METADATA_BYTES,
) -> str:
    """The text to commit beside an offset: what is finished above it.

    What is found there now stays as it is when nobody here can read it.
    """
    if found is not None and handover.decode(found.offset, found.metadata) is None:
        return found.metadata
    return handover.encode(offset, finished, bytes_most)


class Committer:
    """Moves a group's committed offsets forward, checking before and after that nobody else did.

    Kafka takes such a commit only while the group has no members, and does not fence one committer
    from another: so what is found must be what this drain wrote. When the answer to a write is
    lost, it remembers that both values may be found from then on.
    """

    def __init__(
        self, cluster: Cluster, group: str, topic: str, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self.group = group
        self.topic = topic
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._in_doubt: dict[int, set[int]] = {}
        self._metadata_bytes = handover.METADATA_BYTES

    def commit(
        self,
        offsets: Mapping[int, int],
        expected: Mapping[int, Set[int | None]],
        finished: Mapping[int, Sequence[Range]] | None = None,
    ) -> dict[int, int]:
        """Commit an offset per partition, each the next one to be handled.

        ``finished`` has ranges above them that need not be handled: they travel in the metadata,
        as far as they fit, and a commit is written too when only these have changed.

        ``expected`` has, by partition, what may be found committed before: what this drain wrote
        last, or what was there when it began (None for nothing). Offsets that are committed already
        are not written again, and lower ones neither.

        Returns what is committed now, by partition.

        Raises:
            OffsetMoved: when something else is found, before or after; nothing is written then,
                or nothing more.
            GroupJoined: when the group has members; nothing is written then.
            TopicGone: when the topic does not exist any more.
            CommitDelayed: when no answer came in time: try again later.
            Interrupted: when this user may not commit.
        """
        with self._told_as_running():
            commits = self._read(offsets)
            found = {p: None if known is None else known.offset for p, known in commits.items()}
            for partition, offset in found.items():
                allowed = set(expected[partition]) | self._in_doubt.get(partition, set())
                if offset not in allowed:
                    raise self._moved(partition, offset, allowed, "before a commit")
            moves: dict[int, CommittedOffset] = {}
            for partition, offset in offsets.items():
                known = commits[partition]
                if known is not None and offset < known.offset:
                    continue
                ranges = (finished or {}).get(partition, ())
                text = metadata_beside(known, offset, ranges, self._metadata_bytes)
                if known != (new := CommittedOffset(offset, text)):
                    moves[partition] = new
            if not moves:
                return {p: o for p, o in found.items() if o is not None}
            # From here on each of them may be found, whatever is heard of it.
            for partition, move in moves.items():
                self._in_doubt.setdefault(partition, set()).add(move.offset)
            self._write(moves)
            for partition, known in self._read(moves).items():
                wrote = moves[partition].offset
                found[partition] = None if known is None else known.offset
                if found[partition] != wrote:
                    raise self._moved(partition, found[partition], {wrote}, "after a commit")
                self._in_doubt[partition].discard(wrote)
        return {p: o for p, o in found.items() if o is not None}

    def check(self, topic_id: str) -> None:
        """Make sure that topic and group are still this drain's to work on.

        Raises:
            GroupJoined: when a consumer is in the group: it handles what the drain handles.
            TopicGone, CommitDelayed, Interrupted: as ``check_topic`` and ``commit`` do.
        """
        self.check_topic(topic_id)
        with self._told_as_running():
            if self._cluster.group(self.group).active:
                raise self._cluster.group_active(self.group)

    def check_topic(self, topic_id: str) -> None:
        """Make sure that the topic is still the one with this id.

        Raises:
            TopicGone: when it was deleted, or deleted and made again.
            CommitDelayed: when no answer came in time.
        """
        with self._told_as_running():
            found = self._cluster.topic(self.topic)
        if found.topic_id != topic_id:
            raise self._gone(f"was deleted and made again (id {found.topic_id}, not {topic_id})")

    def _read(self, partitions: Mapping[int, object]) -> dict[int, CommittedOffset | None]:
        return self._cluster.commits(self.group, self.topic, partitions, self._timeout_s)

    def _write(self, moves: Mapping[int, CommittedOffset]) -> None:
        too_long = self._cluster.alter_committed(
            self.group,
            self.topic,
            {partition: move.offset for partition, move in moves.items()},
            self._timeout_s,
            {partition: move.metadata for partition, move in moves.items()},
        )
        # Half as much the next time, until the broker takes it or nothing is left to tell.
        for partition in too_long:
            most = len(moves[partition].metadata) // 2
            self._metadata_bytes = min(self._metadata_bytes, most)

    @contextmanager
    def _told_as_running(self) -> Iterator[None]:
        # What refuses a drain that is about to start, interrupts or delays one that runs.
        try:
            yield
        except TopicMissing:
            raise self._gone("was deleted") from None
        except GroupActive as error:
            raise GroupJoined(str(error), hint=error.hint) from error
        except BrokerUnreachable as error:
            raise CommitDelayed(str(error), hint=error.hint) from error
        except Refused as error:
            raise Interrupted(str(error), hint=error.hint) from error

    def _moved(
        self, partition: int, found: int | None, expected: Set[int | None], when: str
    ) -> OffsetMoved:
        if found is None:
            self._cluster.topic(self.topic)  # a deleted topic takes its offsets with it
        wanted = " or ".join(sorted(_shown(offset) for offset in expected))
        return OffsetMoved(
            f"group {self.group} has {_shown(found)} committed on {self.topic}/{partition} {when},"
            f" where this drain left {wanted}: someone else commits for this group",
            hint="find who did (a consumer, another drain, a reset of offsets) and stop it first",
        )

    def _gone(self, what: str) -> TopicGone:
        return TopicGone(
            f"topic {self.topic} {what}",
            hint="its backlog is gone with it; this drain can't go on",
        )


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
