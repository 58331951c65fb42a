"""Streams: the accounts of a task, one for each shard of each partition that it has a part of.

In the task they stand where a drain in one process has its partitions; outside of it each shard is
a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from drainer.message import Stream
from drainer.model.claims import Claim, Claims
from drainer.model.progress import Progress
from drainer.model.rules import RuleAccount


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

    def by_stream(self, ruled: RuleAccount, streams: Iterable[int]) -> RuleAccount:
        """An account for a task, whose ``asked_below`` is by stream."""
        below = {n: ruled.asked_below.get(Stream(n).partition, 0) for n in streams}
        return replace(ruled, asked_below=below)

    def ruled(self, ruled: RuleAccount) -> RuleAccount:
        """The account of a task, as others read it: by claim."""
        asked_by = {selector: dict(offsets) for selector, offsets in ruled.asked_by.items()}
        for stream, offset in ((Stream(n), offset) for n, offset in ruled.asked_below.items()):
            offsets = asked_by.setdefault(self.claim(stream.shard), {})
            number = stream.partition
            offsets[number] = max(offset, offsets.get(number, 0))
        return replace(ruled, asked_below={}, asked_by=asked_by)
