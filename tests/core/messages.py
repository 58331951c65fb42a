"""Messages and plans to test with, and what naive readers of a Progress make of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from builders import progress_at
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.model.progress import Partial, Progress
from drainer.model.ranges import decode_ranges, encode_ranges

Place = tuple[int, int, int]  # partition, offset, index


def message_at(offset: int, partition: int = 0, key: bytes | None = None) -> Message:
    return Message(Origin("orders", "topic-id", partition), offset, key, b"value")


def subs_of(*keys: Hashable) -> list[SubMessage]:
    return [SubMessage(key) for key in keys]


def sub_of(spec: str | Sequence[str] | None) -> SubMessage:
    """One with this sub-key, or with several of them; a barrier for None."""
    if spec is None:
        return Barrier()
    return SubMessage(spec) if isinstance(spec, str) else SubMessage(keys=spec)


def sub_place(sub: SubMessage) -> Place:
    return sub.message.partition, sub.message.offset, sub.index


def one_partition(end: int) -> Dispatcher:
    return Dispatcher({0: Ledger(0, end)})


def deliver(dispatcher: Dispatcher, offset: int, *subs: SubMessage | str) -> Message:
    """Delivers a message of partition 0; a str stands for a sub-message with that sub-key."""
    message = message_at(offset)
    dispatcher.deliver(message, [SubMessage(s) if isinstance(s, str) else s for s in subs])
    return message


def take(dispatcher: Dispatcher) -> SubMessage:
    """Takes what must be there."""
    sub = dispatcher.take()
    assert sub is not None
    return sub


def take_all(dispatcher: Dispatcher) -> dict[str, SubMessage]:
    """Takes all that is ready, by ``offset[index]``."""
    taken = {}
    while (sub := dispatcher.take()) is not None:
        taken[f"{sub.message.offset}[{sub.index}]"] = sub
    return taken


def entries_in(owner: object) -> int:
    """Entries of the lists and queues of an object, and of those that lists and mappings hold."""
    entries = 0
    for each in vars(owner).values():
        inner = each.values() if isinstance(each, dict) else each
        if isinstance(each, list | deque):
            entries += len(each)
        if isinstance(each, list | deque | dict):
            entries += sum(len(one) for one in inner if isinstance(one, deque | dict))
    return entries


def written_and_read(progress: Progress) -> Progress:
    """A progress after a trip through the text that plans and journals hold."""
    return progress_at(
        progress.watermark,
        finished=decode_ranges(encode_ranges(progress.finished)),
        partial={o: Partial.decode(part.encode()) for o, part in progress.partial.items()},
        messages=progress.messages,
        sub_messages=progress.sub_messages,
        outcomes={
            o: decode_ranges(encode_ranges(ranges)) for o, ranges in progress.outcomes.items()
        },
    )


def finished_subs(progress: Progress, offset: int, count: int) -> set[int]:
    """Indexes of the ``count`` sub-messages at an offset that are finished by a progress."""
    if is_finished(progress, offset):
        return set(range(count))
    part = progress.partial.get(offset)
    return set() if part is None else {i for i in range(count) if part.bits >> i & 1}


def is_finished(progress: Progress, offset: int) -> bool:
    """Whether the whole message at an offset is finished by a progress."""
    return offset < progress.watermark or any(
        first <= offset < end for first, end in progress.finished
    )
