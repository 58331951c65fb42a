"""A canary: handles the first messages for real, and keeps the plan to resume from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import Fetched, Source
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_HALTED,
    DrainerError,
    Interrupted,
    Refused,
)
from drainer.kafka.cluster import Cluster
from drainer.message import Message
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.drain import Callbacks, drain
from drainer.operations.engine import InProcess
from drainer.operations.start import Prepared

OVER = "the canary is over"


class CanaryOver(Interrupted):
    """Raised as the reason why a canary's drain ended: its messages are done."""


@dataclass(frozen=True, slots=True)
class _Part:
    messages: Iterable[Message]
    reached: dict[int, int] = field(default_factory=dict)


class FirstMessages:
    """A source that gives no more than so many messages, and ends the drain once they are done."""

    def __init__(self, source: Source, most: int, dispatcher: Dispatcher) -> None:
        self._source = source
        self._left = self._most = most
        self._dispatcher = dispatcher
        self._delivered = False  # the last of them, too

    @property
    def trouble(self) -> str | None:
        return self._source.trouble if self._left else None

    @property
    def failure(self) -> DrainerError | None:
        if self._source.failure is not None:
            return self._source.failure
        if not self._all_done():
            return None
        return CanaryOver(
            f"{OVER}: {self._most:,} messages are done", hint="Resume the plan for the rest."
        )

    def start(self) -> None:
        self._source.start()

    def next_batch(self) -> Fetched | None:
        if not self._left:
            return None
        batch = self._source.next_batch()
        if batch is None:
            return None
        messages = list(islice(batch.messages, self._left))
        if len(messages) < self._left:
            self._left -= len(messages)
            return _Part(messages, batch.reached)
        # What was reached behind the ones that are left out is not reached now.
        part = _Part(self._last(messages))
        self._left = 0
        return part

    def stop(self) -> None:
        self._source.stop()

    def _last(self, messages: list[Message]) -> Iterator[Message]:
        yield from messages
        self._delivered = True

    def _all_done(self) -> bool:
        # Or nothing more can be done for them: what is parked stays pending.
        lanes = self._dispatcher.lanes
        return self._delivered and not (lanes.running or lanes.ready or lanes.delayed)


def send_canary(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    first: int,
    observe: Callable[[Status], None],
    print_line: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
) -> Summary:
    """Drains the first messages as any drain does: journal, plan, commits, failure policy.

    The summary has a cause only when the canary was stopped before its end. Raises as ``drain``
    does, and Refused for a drain on Spark.
    """
    if not isinstance(prepared.engine, InProcess):
        raise Refused(
            "a canary runs in this process, not on Spark", hint="Resume the rest on Spark."
        )
    engine = InProcess(lambda source, dispatcher: FirstMessages(source, first, dispatcher))

    def observe_canary(status: Status) -> None:
        # Its planned stop needs no report.
        control = status.control
        over = control.stopping is not None and control.stopping.startswith(OVER)
        observe(replace(status, control=replace(control, stopping=None)) if over else status)

    with_canary = replace(prepared, engine=engine)
    callbacks = Callbacks(observe_canary, print_line, give_up)
    summary = drain(cluster, with_canary, running, callbacks)
    if not isinstance(summary.cause, CanaryOver):
        return summary
    code = EXIT_DEAD_LETTERS if summary.sub_messages.given_up else EXIT_DONE
    if summary.parked.total:
        code = EXIT_HALTED
    return replace(summary, status="canary", exit_code=code, cause=None)
