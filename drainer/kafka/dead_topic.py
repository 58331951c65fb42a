"""The dead-letter topic itself: whether it is there and fit, and making it."""

from __future__ import annotations

from dataclasses import dataclass

from drainer.errors import BrokerUnreachable, Refused, RightMissing, TopicMissing
from drainer.kafka.answers import granting
from drainer.kafka.cluster import Cluster, limit

# A letter must not vanish before somebody read it, and not make way for another of its sub-key.
CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

_CHOOSE = "name another with --dead-letter-topic"
_DO_WITHOUT = "redrive with --on-failure park, which writes no dead letters"


@dataclass(frozen=True, slots=True)
class DeadLetterTopicInfo:
    """A dead-letter topic as it is, or as it would be made."""

    name: str
    exists: bool
    partitions: int  # how many it has, or would be made with
    # After how long its letters vanish; None when they don't, or the broker does not say.
    retention_ms: int | None = None
    # Whether this user may not see its configuration, so that letters may vanish.
    hidden: bool = False


def look_at_dead_letter_topic(
    cluster: Cluster, name: str, *, drained: str | None, partitions: int
) -> DeadLetterTopicInfo:
    """Makes sure that dead letters can be written there; makes nothing.

    ``partitions`` is how many it would be made with, and ``drained`` the topic that it may not be;
    None for a redrive, whose letters go where they came from.

    Raises Refused when it is the drained topic, is compacted, has an impossible name, or this user
    may not write to it or make it.
    """
    if name == drained:
        raise Refused(
            f"dead-letter topic {name} is the drained topic: the drain would read its own letters",
            hint=_sentence(_CHOOSE),
        )
    otherwise = _DO_WITHOUT if drained is None else _CHOOSE
    try:
        found = cluster.topic(name, "WRITE")
    except TopicMissing:
        make_dead_letter_topic(cluster, name, partitions, only_look=True)
        return DeadLetterTopicInfo(name, False, partitions)
    except RightMissing as error:
        hint = f"{granting('WRITE', f'topic {name}')}, or {otherwise}."
        raise RightMissing(f"can't write dead letters: {error}", hint=hint) from error
    except BrokerUnreachable:
        raise
    except Refused as error:  # Kafka does not take the name
        raise Refused(str(error), hint=_sentence(otherwise)) from error
    config = cluster.topic_config(name)
    if "compact" in config.get("cleanup.policy", ""):
        raise Refused(
            f"dead-letter topic {name} is compacted: it keeps only the last letter per sub-key",
            hint=f"Set its cleanup.policy to delete, or {otherwise}.",
        )
    return DeadLetterTopicInfo(
        name, True, len(found.partitions), limit(config.get("retention.ms")), hidden=not config
    )


def make_dead_letter_topic(
    cluster: Cluster, name: str, partitions: int, *, only_look: bool = False
) -> None:
    """Makes the topic, as ``Cluster.create_topic`` does; its letters stay until somebody deletes
    them.

    Raises Refused when Kafka won't have it.
    """
    try:
        cluster.create_topic(name, partitions, CONFIG, kind="dead-letter ", only_look=only_look)
    except RightMissing as error:
        hint = f"{granting('CREATE and WRITE', f'topic {name}')}, ask for the topic, or {_CHOOSE}."
        raise RightMissing(str(error), hint=hint) from error
    except BrokerUnreachable:
        raise
    except Refused as error:
        raise Refused(str(error), hint=_sentence(_CHOOSE)) from error


def _sentence(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}."
