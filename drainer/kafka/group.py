"""What the cluster says of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group, with the partitions that it has: ``(topic, partition)`` pairs."""

    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.client_id} on {self.host}"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as it is now.

    Attributes:
        name: its id.
        state: ``empty``, ``dead`` (which a group that does not exist is too), ``stable``, ...
        kind: ``classic``, ``consumer`` or ``unknown``.
        members: who is in it.
        simple: whether it never had any.
    """

    name: str
    state: str
    kind: str
    members: tuple[Member, ...]
    simple: bool = False

    @property
    def counts_from_commits(self) -> bool:
        """Whether its offsets expire by the time of their commit, whoever left the group when."""
        return self.simple or self.state == "dead" or self.kind == "consumer"

    @property
    def active(self) -> bool:
        """Whether consumers are in it, or on their way in or out; then a drain must not commit."""
        return self.state not in {"empty", "dead"} or bool(self.members)
