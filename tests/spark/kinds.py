"""Handlers of all kinds, which the tests of the verbs name by the path of this file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence

from drainer import Context, Handler, Message, SubMessage


class Plain(Handler):
    """Makes a sub-message of each text in a JSON list. A payload is an object with the text."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        for text in json.loads(message.value or b"[]"):
            yield SubMessage(text, {"text": text})

    def handle(self, sub: SubMessage) -> None:
        assert sub.payload == {"text": sub.key}


class Awaited(Plain):
    async def handle(self, sub: SubMessage) -> None:  # type: ignore[override]
        await asyncio.sleep(0)


class Batched(Plain):
    def handle_batch(self, subs: Sequence[SubMessage]) -> list[BaseException | None]:
        return [None for _ in subs]


class InLanes(Batched):
    batch_of = "lane"


class Coalesced(Plain):
    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
        return SubMessage(later.key, later.payload)


class Whole(Plain):
    whole_messages = True

    def handle(self, sub: SubMessage) -> None:
        assert sub.key in json.loads(sub.message.value or b"")
        assert sub.message.key == b"one"


class Headed(Plain):
    def handle(self, sub: SubMessage) -> None:
        assert list(sub.message.headers) == [("trace", b"7"), ("empty", None)]


class Default(Handler):
    def handle(self, sub: SubMessage) -> None:
        assert sub.key == b"one"
        assert sub.payload == sub.message.value


class Decoded(Handler):
    """Wants its messages decoded as JSON."""

    whole_messages = True

    def handle(self, sub: SubMessage) -> None:
        assert sub.payload == sub.message.decoded == json.loads(sub.message.value or b"")


class Opened(Plain):
    """Splits only when it is open, as a handler may that looks keys up."""

    def open(self, context: Context) -> None:
        self._prefix = context.options["prefix"]

    def split(self, message: Message) -> Iterator[SubMessage]:
        for sub in super().split(message):
            yield SubMessage(f"{self._prefix}{sub.key}", sub.payload)

    def handle(self, sub: SubMessage) -> None:
        assert sub.key == f"{self._prefix}{sub.payload['text']}"


class Odd(Handler):
    """Has keys and payloads that no column can hold as they are."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage("\ud800", {"numbers": {1, 2}})
        yield SubMessage(("a", 1), float("nan"))
        yield SubMessage(7, b"seven")

    def handle(self, sub: SubMessage) -> None:
        assert sub.key in ("\ud800", ("a", 1), 7)


class Unpicklable(Handler):
    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage("a", lambda: 1)

    def handle(self, sub: SubMessage) -> None: ...


class Flaky(Plain):
    def handle(self, sub: SubMessage) -> None:
        if sub.attempt < 3:
            raise ValueError("not yet")
