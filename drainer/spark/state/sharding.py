"""Streams: the accounts of a task, one for each shard of each partition that it has a part of.

In the task they stand where a drain in one process has its partitions; outside of it each shard is
a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drainer.message import Stream
from drainer.model.claims import Claim, Claims
from drainer.model.progress import Progress


@dataclass(frozen=True, slots=True)
class Sharding:
    """Goes from streams to claims of so many ``shards``, and back."""

    shards: int

    def claim(self, shard: int) -> str:
        """Name of the claim of a shard."""
        return str(Claim(shard, self.shards))

    def claims(self, changes: Mapping[int, Progress]) -> dict[str, dict[int, Progress]]:
        """Changes of streams, by claim and partition."""
        claims: dict[str, dict[int, Progress]] = {}
        for stream, progress in ((Stream(n), progress) for n, progress in changes.items()):
            claims.setdefault(self.claim(stream.shard), {})[stream.partition] = progress
        return claims

    def changes(self, claims: Claims) -> dict[int, Progress]:
        """The same the other way round."""
        return {
            Stream(number, Claim.parse(selector).number): progress
            for selector, claim in claims.items()
            for number, progress in claim.items()
        }
