"""Tools to test a handler without Kafka.

``message``, ``context``, ``split`` and ``run`` are for unit tests.

``check_split``, ``check_commutes`` and ``check_idempotent`` try to break the promises of
docs/explanation/correctness.md. They raise LawBroken, an AssertionError, with the smallest
counter-example that was found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from drainer.certify.laws import check_commutes, check_idempotent
from drainer.certify.split import LawBroken, check_split
from drainer.certify.subject import AT_ONCE, TOPIC, HandlerSource, Subject, again, message, messages
from drainer.core.batches import Batch, BatchOf, InPart
from drainer.engine.ports import Acknowledge, CallInput
from drainer.engine.runtime import UNSIGNALLED
from drainer.handler import Context, Fatal, Retry, Skip
from drainer.host.calls import ensure_done
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage, Unsplit
from drainer.model.settings import FailureSettings, Limit, LocalSettings, OnFailure
from drainer.model.sub_messages import identify
from drainer.operations.in_memory import drain_of
from drainer.policy.fault import blame
from drainer.split.splitting import split_or_reject

__all__ = [
    "LawBroken",
    "Result",
    "check_commutes",
    "check_idempotent",
    "check_split",
    "context",
    "message",
    "messages",
    "run",
    "split",
]

ATTEMPTS_MOST = 100  # A sub-message whose handler raises Retry gets this many attempts.
_FAILURES = FailureSettings(
    retries=0,
    on_failure=OnFailure.DEAD_LETTER,
    dead_letter_topic="dead",
    max_failures=Limit(),
    breaker=False,
)

Failed = tuple[SubMessage, BaseException]


@dataclass(frozen=True, slots=True)
class Result:
    """The outcomes of sub-messages. Each list is in the order of events.

    Attributes:
        done: the sub-messages whose call returned.
        skipped: those that raised ``Skip``, with it.
        given_up: those that raised ``GiveUp`` or any other error, with it. A message that ``split``
            rejected is one of them, with an error of the same name and text.
        retried: each attempt that raised ``Retry``, or an error that means it, such as HTTP 429.
    """

    done: list[SubMessage] = field(default_factory=list)
    skipped: list[Failed] = field(default_factory=list)
    given_up: list[Failed] = field(default_factory=list)
    retried: list[Failed] = field(default_factory=list)


def context(**options: object) -> Context:
    """Make a context for ``open``, with the options that ``--set name=value`` gives."""
    return Context(TOPIC, "testing", "testing", AT_ONCE, _as_set(options))


def split(handler: HandlerSource, message: Message) -> list[SubMessage]:
    """Split a message, and return the sub-messages as ``handle`` receives them.

    Each has its message, its index and its id. ``open`` is not called. Raises what ``split``
    raises, and SplitFailed when a drain would reject what ``split`` yields.
    """
    own = Subject(handler).fresh().split
    subs = [SubMessage(message.key, message.value)] if own is None else list(own(message))
    identify(message, subs)
    return subs


async def run(
    handler: HandlerSource,
    messages: Sequence[Message],
    *,
    options: Mapping[str, object] | None = None,
    concurrency: int = AT_ONCE,
) -> Result:
    """Handle messages as a drain does, from ``open`` to ``close``, in its order and concurrency.

    Only ``Retry`` leads to a retry, which comes without a delay. There is no circuit breaker. A
    call times out after 30 s.

    Raises:
        HandleFailed: when a handler raises ``Fatal``, or ``Retry`` 100 times.
        SplitFailed: when ``split`` raises ``Fatal``.
        Refused: when ``open`` raises.
        Halted: when ``close`` raises.
        ValueError: when the offsets of a partition don't rise.
    """
    recorder = _Recorder()
    loop = asyncio.get_running_loop()
    handles_errors = loop.get_exception_handler()
    running = LocalSettings(concurrency=concurrency, options=_as_set(options or {}))
    given = [again(each) for each in messages]
    watched = recorder.watch(Subject(handler, running.options).fresh())
    with drain_of(given, watched, running, _FAILURES, lambda _: recorder, UNSIGNALLED) as drain:
        try:
            summary = await drain.run_here()
        finally:
            drain.start_no_more()  # The coroutine may have been cancelled.
            loop.set_exception_handler(handles_errors)
    if summary.cause is not None:
        raise summary.cause
    return recorder.result


def _as_set(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


class _Recorder:
    """Records how the calls of a handler end. It is also the drain's sink of dead letters."""

    trouble: str | None = None

    def __init__(self) -> None:
        self.result = Result()

    def watch(self, watched: LoadedHandler) -> LoadedHandler:
        """Return a copy of a handler that records how each call ends."""
        handler = copy(watched)
        call: Any = handler.handle_batch if handler.batching else handler.handle

        async def on_the_loop(work: CallInput) -> None:
            with self._noting(work, watched):
                ensure_done(await call(work))

        def on_a_thread(work: CallInput) -> None:
            with self._noting(work, watched):
                ensure_done(call(work))

        def split(message: Message) -> list[SubMessage]:
            assert watched.split is not None
            subs = split_or_reject(watched.split, message)
            for sub in subs:
                if isinstance(sub, Unsplit) and sub.skip is not None:
                    self.result.skipped.append((sub, Skip(sub.skip)))
            return subs

        noted: Any = on_the_loop if handler.is_async else on_a_thread
        handler.handle = handler.handle_batch = noted
        handler.split = None if watched.split is None else split
        return handler

    @contextmanager
    def _noting(self, work: CallInput, handler: LoadedHandler) -> Iterator[None]:
        subs = work.members if isinstance(work, Batch) else [work]
        try:
            yield
        except InPart as part:
            raise InPart(list(self._note_each(work, part, handler))) from None
        except Exception as raised:
            error = self._note(subs, raised, handler)
            if error is raised:
                raise
            raise error from raised
        self.result.done.extend(subs)

    def _note_each(
        self, batch: Batch, part: InPart, handler: LoadedHandler
    ) -> Iterator[BaseException | None]:
        of_lane = handler.batching is not None and handler.batching.of is BatchOf.LANE
        stopped = False
        for sub, result in zip(batch.subs, part.results, strict=True):
            if stopped:  # The rest of the batch will be handled again.
                yield result
            elif result is None:
                self.result.done.extend(sub.folded)
                yield None
            elif isinstance(result, Skip):
                self.result.skipped.extend((each, result) for each in sub.folded)
                yield result
            else:
                yield self._note(sub.folded, result, handler)
                stopped = of_lane and not isinstance(result, Skip)

    def _note(
        self, subs: Sequence[SubMessage], raised: BaseException, handler: LoadedHandler
    ) -> BaseException:
        """Record an error, and return the error that the drain gets in its place."""
        _, error = blame(raised, handler.is_outage)
        if isinstance(error, Skip) and len(subs) == 1:
            self.result.skipped.append((subs[0], error))
        if not isinstance(error, Retry):
            return raised
        self.result.retried.extend((sub, error) for sub in subs)
        if subs[0].attempt >= ATTEMPTS_MOST:
            return Fatal(f"{ATTEMPTS_MOST} attempts ended with {error!r}")
        return Retry(str(error), after=0.0)

    def send(self, sub: SubMessage, error: BaseException, acknowledge: Acknowledge) -> None:
        self.result.given_up.append((sub, error))
        acknowledge(None)

    def close(self, timeout_s: float) -> None:
        """Do nothing, because ``send`` has acknowledged every letter."""
