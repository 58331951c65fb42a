"""``--divert``: sub-messages that become dead letters without a call of the handler.

The pipeline puts this part around the handler. A call for what is diverted raises ``Divert``, and
the engine writes a dead letter for it that counts as no failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import Any

from drainer.core.batches import Batch, BatchOf, InPart, ensure_all_done
from drainer.handler import GiveUp, Results
from drainer.host.calls import ensure_done
from drainer.loading.loader import LoadedHandler
from drainer.message import SubMessage
from drainer.model.facts import Undecided
from drainer.model.predicate import Predicate
from drainer.policy.redrive import Redriven


class Divert(GiveUp):
    """Raised in place of a call of the handler, with the expression that diverts."""

    letter_reason = "diverted"


def diverting(handler: LoadedHandler, expressions: Sequence[str]) -> LoadedHandler:
    """Return a handler that is not called for sub-messages for which an expression is true.

    The other sub-messages of a batch are handled. Nothing is folded, because a sub-message that is
    diverted could be folded with one that is not.
    """
    if not expressions:
        return handler
    tests = [(text, Predicate(text)) for text in expressions]
    handle, handle_batch, batching = handler.handle, handler.handle_batch, handler.batching
    of_lane = batching is not None and batching.of is BatchOf.LANE

    def diverted(sub: SubMessage) -> Divert | None:
        for text, test in tests:
            with suppress(Undecided):
                if test.matches(sub.original if isinstance(sub, Redriven) else sub):
                    return Divert(text)
        return None

    def call(sub: SubMessage) -> Any:
        if (divert := diverted(sub)) is not None:
            raise divert
        return handle(sub)

    def call_batch(batch: Batch) -> None:
        with _without([*map(diverted, batch.subs)], batch, of_lane) as rest:
            ensure_done(rest.subs and handle_batch(rest))

    async def call_batch_on_the_loop(batch: Batch) -> None:
        with _without([*map(diverted, batch.subs)], batch, of_lane) as rest:
            ensure_done(rest.subs and await handle_batch(rest))

    found = copy(handler)
    found.handle = call
    found.handle_batch = call_batch_on_the_loop if handler.is_async else call_batch
    if batching is not None:
        found.batching = replace(batching, coalesce=None)
    return found


@contextmanager
def _without(diverts: Sequence[Divert | None], batch: Batch, of_lane: bool) -> Iterator[Batch]:
    """Yield the part of a batch that is to be handled, and raise the results of the whole batch.

    Returns normally if everything is done. If the batch is a run of one lane (``of_lane``), what is
    behind a diverted sub-message is not handled, because it waits for the letter.
    """
    ends, waits = list[BaseException | None](), None
    for divert in diverts:
        ends.append(waits or divert)
        if of_lane:
            waits = waits or divert
    results: Results = ()
    rest = Batch()
    rest.subs = [sub for sub, end in zip(batch.subs, ends, strict=True) if end is None]
    rest.members = list(rest.subs)
    try:
        yield rest
    except InPart as part:
        results = part.results
    except Exception as raised:
        if len(rest.subs) > 1:
            raise  # Nothing is done, and the batch is tried again in smaller calls.
        results = [raised]
    of_rest = iter(results)
    ensure_all_done([next(of_rest, None) if end is None else end for end in ends])
