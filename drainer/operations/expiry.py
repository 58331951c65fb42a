"""How long the group's committed offsets stand: brokers drop those of a group that is empty."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from drainer.kafka.cluster import OFFSETS_RETENTION, Cluster

NEAR = timedelta(days=1)  # and at most half of the time that offsets are kept


def expiry_warnings(
    cluster: Cluster, group: str, topic: str, committed: Mapping[int, int | None]
) -> list[str]:
    """What to say of offsets that may expire soon.

    Nothing tells when a group became empty. But it was alive when it handled what it has, and that
    was not before these records were written.
    """
    stands = {number: offset for number, offset in committed.items() if offset}
    seconds = cluster.offsets_kept_s() if stands else None
    if seconds is None:
        return []
    kept = timedelta(seconds=seconds)
    near = min(NEAR, kept / 2)
    since = datetime.now(UTC) - kept + near
    firsts = cluster.offset_at(topic, dict.fromkeys(stands, round(since.timestamp() * 1000)))
    if any((first := firsts[n]) is not None and first < offset for n, offset in stands.items()):
        return []
    return [
        f"the offsets of group {group} may expire within {near}, or have begun to: brokers drop"
        f" them {kept} after its last consumer left ({OFFSETS_RETENTION}), and all that it handled"
        f" is older than {kept - near}; a running drain writes them again, and its plan outlives"
        " them"
    ]


def stands_until(cluster: Cluster, group: str, begun: datetime) -> list[str]:
    """Until when the offsets of a drain that has ended stand, as far as that can be known.

    ``begun`` is before its first commit, and when the group was empty.
    """
    seconds = cluster.offsets_kept_s()
    if seconds is None:
        return []
    kept = timedelta(seconds=seconds)
    until = f"{begun + kept:%Y-%m-%d %H:%M} UTC"
    if cluster.group(group).counts_from_commits:
        return [f"what this drain committed for group {group} stands at least until {until}"]
    return [
        f"the offsets of group {group} stand until {until} at most: brokers drop them {kept} after"
        " its last consumer left, and do not say when that was"
    ]
