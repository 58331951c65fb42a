"""What must be true of the group before anything is done for it."""

from __future__ import annotations

from collections.abc import Iterable

from drainer.core.listed import listed
from drainer.errors import GroupActive
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import Member


def check_inactive(cluster: Cluster, group: str) -> str:
    """The group's state, when nobody is in it. Raises GroupActive, which names the members."""
    found = cluster.group(group)
    if not found.active:
        return found.state
    members = name_members(found.members) or "its members are joining"
    raise GroupActive(
        f"group {group} is in use: {members} (state {found.state})",
        hint="stop these consumers first; Kafka takes no commits from outside a live group, and two"
        " readers would handle messages twice and out of order",
    )


def nobody_in(group: str, state: str) -> str:
    """An inactive group's state in words; to Kafka, one that does not exist is ``dead``."""
    return f"there is no group {group} yet" if state == "dead" else f"group {group} has no members"


def name_members(members: Iterable[Member]) -> str:
    """Members as an operator knows them: client id and host."""
    known = sorted({f"{member.client_id}@{member.host}" for member in members})
    return listed(known)
