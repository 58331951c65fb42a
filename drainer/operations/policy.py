"""The failure policy of a drain, and the topic of dead letters that it needs.

The topic is checked before the preview, and created after the drain was confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from drainer.errors import BadExpression, Refused, raised_as
from drainer.kafka.answers import granting
from drainer.kafka.cluster import Cluster, config_limit
from drainer.kafka.dead_letters import (
    LIMIT,
    DeadLetterTopicInfo,
    check_dead_letter_topic,
    days,
    make_dead_letter_topic,
    originals_kept,
    with_headroom,
)
from drainer.model.predicate import Predicate
from drainer.model.settings import FailureSettings
from drainer.policy.dead_letter import default_dead_letter_topic


@dataclass(frozen=True, slots=True)
class Policy:
    """Failure settings, and what was found about their dead-letter topic.

    Attributes:
        failures: the settings, with the name of the topic.
        topic: the topic; None if there can't be any dead letters.
        too_small: a warning that letters of large messages will have no payload; None if all fit.
    """

    failures: FailureSettings
    topic: DeadLetterTopicInfo | None
    too_small: str | None = None

    @property
    def warnings(self) -> Iterator[str]:
        """Yield warnings about losses that a resume can't undo."""
        topic = self.topic
        if topic is not None and topic.hidden:
            seeing = granting("DESCRIBE_CONFIGS", f"topic {topic.name}")
            yield (
                f"dead letters in {topic.name} may vanish: this user may not see its retention and"
                f" compaction. {seeing}"
            )
        else:
            yield from filter(None, [self.too_small])
            if topic is not None and topic.retention_ms is not None:
                after = days(topic.retention_ms)
                yield f"dead letters in {topic.name} vanish after {after} (retention.ms)"
        if self.failures.skip:
            yield (
                "skipped sub-messages count as done: neither this drain nor the group's consumers"
                " will handle them"
            )

    @property
    def makes(self) -> str | None:
        """The name of the topic that drainer has to create; None if it exists or is not needed."""
        return self.topic.name if self.topic is not None and not self.topic.exists else None

    def make(self, cluster: Cluster) -> None:
        """Create the topic if it does not exist. Raises Refused."""
        if self.topic is not None and not self.topic.exists:
            make_dead_letter_topic(cluster, self.topic)


def resolve_policy(
    cluster: Cluster, topic: str, group: str, failures: FailureSettings, *, redrives: bool
) -> Policy:
    """Check the expressions, and that dead letters can be written, if there may be any.

    Nothing is created yet. With ``redrives``, letters go back to the topic that they came from.

    Raises Refused when letters can't be written; UsageError when an expression can't be understood.
    """
    for option, expression in failures.expressions:
        with raised_as(BadExpression, about=f"{option}: "):
            Predicate(expression)
    if redrives and failures.dead_letter_topic is None:
        failures = replace(failures, dead_letter_topic=topic)
    if not failures.writes_letters:
        # The name of the topic is kept, because an earlier run may have written letters to it.
        return Policy(failures, None)
    name = failures.dead_letter_topic or default_dead_letter_topic(topic, group)
    if redrives and name == topic and failures.stops_behind_dead:
        raise Refused(
            "--tune after-dead=park can't keep the order of redriven letters: a letter that"
            " dies again moves behind those that waited for it",
            hint="Use --on-failure park: the letter stays in place, and its lane stays pending.",
        )
    config = cluster.topic_config(topic)
    most = config_limit(config.get(LIMIT))
    info = check_dead_letter_topic(
        cluster,
        name,
        drained=None if redrives else topic,
        partitions=len(cluster.topic(topic).partitions),
        # A redrive writes letters back unchanged.
        limit=most if redrives else with_headroom(most),
    )
    too_small = None
    if most is not None and info.limit is not None and info.limit < most:
        too_small = (
            f"{name} takes {info.limit:,} bytes ({LIMIT}), but {topic} takes {most:,}: larger"
            " letters have no payload, and a redrive reads their messages again"
        )
        if not redrives:
            too_small += f"; {originals_kept(topic, config, None)}"
    return Policy(replace(failures, dead_letter_topic=name), info, too_small)
