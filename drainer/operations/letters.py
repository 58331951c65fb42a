"""Writes the sub-messages that a run gives up to the dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from drainer.engine.ports import Acknowledge
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.kafka.dead_letters import DeadLetterTopic
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage, Unsplit
from drainer.model.plan import OffsetPlan
from drainer.policy.dead_letter import dead_letter
from drainer.policy.redrive import Redriven


@contextmanager
def letter_writers(
    client: ClientSettings, plan: OffsetPlan, runtime: Runtime = THIS_PROCESS
) -> Iterator[Callable[[str], LetterWriter]]:
    """Yield a function that opens a writer to a topic, and close all writers at the end."""
    with ExitStack() as opened:

        def writer_to(topic: str) -> LetterWriter:
            writer = LetterWriter(client, plan, topic, runtime)
            opened.callback(writer.close, 0)
            return writer

        yield writer_to


class LetterWriter:
    """Writes dead letters of sub-messages that were given up. It implements ``DeadLetters``."""

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
        """Write the letter of a sub-message that was given up because of an error.

        ``acknowledge`` is called once the topic has the letter, or with the reason if it may not.
        """
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
