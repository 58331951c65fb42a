"""A handler that keeps every law, and others that break exactly one each."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from typing import Any

from drainer import Barrier, Context, Handler, Message, SubMessage

State = dict[str, Any]


class Documents(Handler):
    """Puts documents: a message's value is a JSON list of their ids, null for a barrier."""

    def open(self, context: Context) -> None:
        self.documents: State = {}

    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in json.loads(message.value or b"[]"):
            if name is None:
                yield Barrier()
            elif isinstance(name, list):
                yield SubMessage(keys=name, payload={"at": message.offset})
            else:
                yield SubMessage(name, {"at": message.offset})

    async def handle(self, sub: SubMessage) -> None:
        for key in sub.keys or (sub.key,):
            self.documents[str(key)] = sub.payload["at"] if sub.payload else None

    def state(self) -> State:
        return self.documents


class OnThreads(Documents):
    def handle(self, sub: SubMessage) -> None:  # type: ignore[override]
        self.documents[str(sub.key)] = sub.payload["at"]


def state(handler: Documents) -> State:
    return handler.state()


# These break a law of split.


class Raises(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        if message.offset == 3:
            raise LookupError("no such document")
        yield from super().split(message)


class GivesOneTwice(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        sub = SubMessage("a")
        yield from (sub, sub)


class ByChance(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage(random.random().hex())


class Counts(Documents):
    """Remembers how many messages it has split."""

    split_before = 0

    def split(self, message: Message) -> Iterator[SubMessage]:
        self.split_before += 1
        yield SubMessage("a", self.split_before)


class SetOrder(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in {str(number) for number in range(9)}:
            yield SubMessage(name)


class Unhashable(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage({"id": 1})  # type: ignore[arg-type]


class Prints(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        print("splitting", message)
        yield from super().split(message)


# These break a law of handle.


class Newest(Documents):
    """Every lane writes what is not in its sub-key."""

    async def handle(self, sub: SubMessage) -> None:
        await super().handle(sub)
        self.documents["newest"] = str(sub)


class Adds(Documents):
    """Reads, awaits, and writes: additions commute, and two at once do not. Remembers its ids."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.documents["total"] = 0
        self.seen: set[str] = set()

    async def handle(self, sub: SubMessage) -> None:
        if sub.id in self.seen:
            return
        self.seen.add(sub.id)
        total = self.documents["total"]
        await asyncio.sleep(0)
        self.documents["total"] = total + 1


class Appends(Documents):
    """Each sub-message leaves a trace each time."""

    async def handle(self, sub: SubMessage) -> None:
        self.documents.setdefault(str(sub.key), []).append(sub.payload["at"])


class AppendsOnce(Appends):
    """Remembers what it has done: that makes an append fit to be repeated."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.seen: set[str] = set()

    async def handle(self, sub: SubMessage) -> None:
        if sub.id not in self.seen:
            self.seen.add(sub.id)
            await super().handle(sub)


class Copies(Documents):
    """Reads what a later one of its lane writes, as in docs/explanation/correctness.md."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage("lane", json.loads(message.value or b"null"))

    def handle(self, sub: SubMessage) -> None:  # type: ignore[override]
        if sub.payload is None:
            self.documents["b"] = self.documents.get("a")
        else:
            self.documents["a"] = sub.payload


class Fails(Documents):
    async def handle(self, sub: SubMessage) -> None:
        if sub.message.offset == 3:
            raise LookupError("the document is locked")


class ReturnsACoroutine(Documents):
    def handle(self, sub: SubMessage) -> Any:
        return asyncio.sleep(0)


class Stamps(Documents):
    """Ends in another state each time."""

    async def handle(self, sub: SubMessage) -> None:
        self.documents["at"] = time.perf_counter_ns()


class Sees(Documents):
    """Leaves a trace of every sub-message, barriers among them."""

    async def handle(self, sub: SubMessage) -> None:
        self.documents[str(sub)] = True
