"""The handler of a redrive. It gets each dead letter as the sub-message that it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

from drainer.core.batches import Batch
from drainer.kafka.settings import ClientSettings
from drainer.letters.originals import Originals
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.terms import RedriveSettings
from drainer.policy.redrive import Redriven, selects, split_letter, why_left_alone
from drainer.split.splitting import split_or_reject


def redriving(
    handler: LoadedHandler, redrive: RedriveSettings, client: ClientSettings
) -> LoadedHandler:
    """Make the handler for a topic of dead letters from the handler of the letters' source.

    A handler with ``of_letters`` gets the letters themselves. ``client`` has the settings of the
    clients that read the messages of letters without payload.
    """
    found, of_letters = copy(handler), getattr(handler.target, "of_letters", None)
    own = decode = of_whole = None
    if of_letters is not None:
        found = LoadedHandler(handler.reference, of_letters(redrive), handler.absolute_reference)
    else:
        of_whole = handler.prepare
        if handler.split is not None:
            own = partial(split_or_reject, handler.split)
        if handler.decoding is not None:
            decode = partial(split_or_reject, handler.decoding.before(lambda _: ()))
    left_alone: Counter[str] = Counter()
    why_not = partial(why_left_alone, redrive)
    letters = Originals(client, redrive.headers, of_whole, why_not)
    split_own = partial(split_letter, redrive, split=own, read=letters.letter, decode=decode)

    def split(message: Message) -> Iterator[SubMessage]:
        for number, sub in enumerate(split_own(message)):
            # A letter is left alone with all of its sub-messages, so the first one tells.
            if number == 0 and not selects(sub):
                left_alone[sub.payload] += 1
            yield sub

    def call(sub: SubMessage) -> Any:
        return handler.handle(cast(Redriven, sub).begin())

    def call_batch(batch: Batch) -> Any:
        for number, sub in enumerate(batch.subs):
            batch.subs[number] = cast(Redriven, sub).begin()
        return handler.handle_batch(batch)

    if of_letters is None:
        found.handle = call
    found.handle_batch = call_batch
    if handler.batching is not None:  # Folding would lose the letters' ids.
        found.batching = replace(handler.batching, coalesce=None)
    found.split, found.split_letter = split, split_own
    found.prepare = letters.prepare
    found.whole_messages = False  # The letter has the message that the handler gets.
    found.left_alone = left_alone
    found.selects = selects
    return found
