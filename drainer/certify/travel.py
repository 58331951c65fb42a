"""Sub-messages as Spark's tasks get them: in another process, without their message's value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drainer.certify.form import form_of
from drainer.errors import Refused, SplitFailed
from drainer.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.finding import Finding, Level


def shipped(
    handler: LoadedHandler, message: Message, subs: Sequence[SubMessage]
) -> list[SubMessage]:
    """Sub-messages as a task gets them. Raises SplitFailed and Refused as a drain on Spark does."""
    if handler.split is None:
        return list(subs)
    return _shipped(message, subs, whole_messages=handler.whole_messages)


def payloads(split: Iterable[tuple[Message, Sequence[SubMessage]]]) -> Finding:
    """Whether payloads are the same ones in another process."""
    for message, subs in split:
        try:
            found = _shipped(message, subs, whole_messages=False)
        except (SplitFailed, Refused) as error:
            return Finding("payloads", Level.WARN, f"on Spark, {error}", error.hint)
        for sub, there in zip(subs, found, strict=True):
            if form_of(sub.content) != form_of(there.content):
                return Finding(
                    "payloads",
                    Level.WARN,
                    f"on Spark, the payload of {sub} changes on its way to the task",
                    "Yield plain data: Spark pickles it.",
                )
    return Finding("payloads", Level.OK, "payloads can travel to Spark tasks")


def _shipped(
    message: Message, subs: Sequence[SubMessage], *, whole_messages: bool
) -> list[SubMessage]:
    # Only now: help is printed without any extra.
    from drainer.spark.task.chunk import ChunkWriter, decode_chunk  # noqa: PLC0415

    writer = ChunkWriter(message.origin, whole_messages=whole_messages)
    writer.add(message, subs, (), [0] * len(subs))
    for sub in subs:
        sub.message = message  # which those of derived classes lose
    return [
        sub
        for chunk in writer.flush()
        for there in decode_chunk(chunk.body, message.origin)
        for sub in there.subs
    ]
