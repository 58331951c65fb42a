"""``drainer limits cleanup``: what runs left behind, and what a run that goes on needs."""

from __future__ import annotations

from dataclasses import dataclass

from drainer.kafka.cluster import Cluster
from drainer.limits.kafka.topic import Own, delete_own, insist_on_removal, moving_topics, own_things


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What runs have left behind, and what of it is still written to."""

    own: Own
    in_use: Own


def find_leftovers(cluster: Cluster) -> Leftovers:
    """Topics and groups of ``drainer limits``; those of a run that is still going are apart.

    Raises Refused when this user may not remove them.
    """
    insist_on_removal(cluster)
    own = own_things(cluster)
    moving = moving_topics(cluster, own.topics) if own.topics else {}
    groups_of = {
        name: tuple(group for group in own.groups if group.startswith(f"{name}."))
        for name in moving
    }
    used = tuple(group for groups in groups_of.values() for group in groups)
    return Leftovers(
        own=Own(
            tuple(name for name in own.topics if name not in moving),
            tuple(group for group in own.groups if group not in used),
        ),
        in_use=Own(tuple(moving), used),
    )


def clean_up(cluster: Cluster, own: Own) -> None:
    """Removes topics and groups of ``drainer limits``, and no others.

    Raises Refused when this user may not, or a group has members.
    """
    delete_own(cluster, own)
