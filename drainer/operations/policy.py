"""The failure policy and the rules of a drain: what they need, checked first and made later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drainer.engine.ports import Acknowledge
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import BadExpression, Refused, raised_as
from drainer.kafka.answers import granting
from drainer.kafka.cluster import Cluster, config_limit
from drainer.kafka.dead_letters import (
    LIMIT,
    DeadLetterTopic,
    DeadLetterTopicInfo,
    check_dead_letter_topic,
    days,
    make_dead_letter_topic,
    originals_kept,
    with_headroom,
)
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage, Unsplit
from drainer.model.facts import Predicate
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings
from drainer.model.terms import Terms
from drainer.policy.dead_letter import dead_letter, default_dead_letter_topic
from drainer.policy.redrive import Redriven

if TYPE_CHECKING:
    from drainer.operations.start import Request


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings with all that was left open settled; ``topic`` is where dead letters go."""

    failures: FailureSettings
    topic: DeadLetterTopicInfo | None
    # Warning that letters of large messages will have no payload; None if all messages fit.
    too_small: str | None = None

    @property
    def warnings(self) -> list[str]:
        """Warnings of what a resume can't undo."""
        found = self._of_topic()
        if self.failures.skip:
            found.append(
                "skipped sub-messages count as done: neither this drain nor the group's consumers"
                " will handle them"
            )
        return found

    def _of_topic(self) -> list[str]:
        topic = self.topic
        too_small = [self.too_small] if self.too_small else []
        if topic is not None and topic.hidden:
            seeing = granting("DESCRIBE_CONFIGS", f"topic {topic.name}")
            return [
                f"dead letters in {topic.name} may vanish: this user may not see its retention and"
                f" compaction. {seeing}"
            ]
        if topic is None or topic.retention_ms is None:
            return too_small
        after = days(topic.retention_ms)
        return [*too_small, f"dead letters in {topic.name} vanish after {after} (retention.ms)"]

    @property
    def makes(self) -> str | None:
        """The topic that will be made."""
        return self.topic.name if self.topic is not None and not self.topic.exists else None

    def make(self, cluster: Cluster) -> None:
        """Makes the topic if it is missing. Raises Refused."""
        if self.topic is not None and not self.topic.exists:
            make_dead_letter_topic(cluster, self.topic)


def resolve_policy(cluster: Cluster, terms: Terms | Request) -> Policy:
    """Checks the expressions, and whether dead letters can be written if there may be any.

    It makes nothing. The dead letters of a redrive go where they came from.

    Raises Refused when they can't be written; UsageError when an expression can't be understood.
    """
    failures, topic = terms.failures, terms.topic
    redrives = terms.redrive is not None
    for option, expression in failures.expressions:
        with raised_as(BadExpression, about=f"{option}: "):
            Predicate(expression)
    if not failures.writes_letters:
        # A topic that was named before is kept: letters are in it.
        return Policy(failures, None)
    name = failures.dead_letter_topic or default_dead_letter_topic(topic, terms.group)
    if redrives and name == topic and failures.stops_behind_dead:
        raise Refused(
            "--after-dead park can't keep the order of redriven letters: a letter that dies again"
            " moves behind those that waited for it",
            hint="Use --on-failure park: the letter stays in place, and its lane stays pending.",
        )
    config = cluster.topic_config(topic)
    most = config_limit(config.get(LIMIT))
    info = check_dead_letter_topic(
        cluster,
        name,
        drained=None if redrives else topic,
        partitions=len(cluster.topic(topic).partitions),
        limit=most if redrives else with_headroom(most),  # letters go back as they are
    )
    too_small = None
    if most is not None and info.limit is not None and info.limit < most:
        too_small = (
            f"{name} takes {info.limit:,} bytes ({LIMIT}), {topic} {most:,}: larger letters have no"
            f" payload, and a redrive reads their messages again"
        )
        if not redrives:
            too_small += f"; {originals_kept(topic, config, None)}"
    return Policy(replace(failures, dead_letter_topic=name), info, too_small)


@contextmanager
def letter_writers(
    client: ClientSettings, plan: OffsetPlan, runtime: Runtime = THIS_PROCESS
) -> Iterator[Callable[[str], LetterWriter]]:
    """Gives the writers of one run's dead letters by topic, and closes them at the end."""
    with ExitStack() as opened:

        def writer_to(topic: str) -> LetterWriter:
            writer = LetterWriter(client, plan, topic, runtime)
            opened.callback(writer.close, 0)
            return writer

        yield writer_to


class LetterWriter:
    """Writes sub-messages that were given up as dead letters; the engine's ``DeadLetters``."""

    def __init__(
        self, client: ClientSettings, plan: OffsetPlan, topic: str, runtime: Runtime
    ) -> None:
        self._plan = plan
        self._now = runtime.now
        self._topic = DeadLetterTopic(client, topic, runtime)

    @property
    def trouble(self) -> str | None:
        return self._topic.trouble

    def send(self, sub: SubMessage, error: BaseException, acknowledge: Acknowledge) -> None:
        former = sub.letter if isinstance(sub, Redriven | Unsplit) else None
        letter = dead_letter(
            sub.original if isinstance(sub, Redriven) else sub,
            reason=getattr(error, "letter_reason", "failed"),
            error=error,
            attempts=sub.attempt + (0 if former is None else former.attempts),
            terms=self._plan.terms,
            time=self._now(),
            former=former,
        )
        self._topic.send(letter, acknowledge)

    def close(self, timeout_s: float) -> None:
        self._topic.close(timeout_s)
