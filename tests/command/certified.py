"""Handlers for `drainer certify`; the tests copy this file. `calls` is a file that handle makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drainer import Context, Handler, Message, SubMessage


class Documents(Handler):
    def open(self, context: Context) -> None:
        self.documents: dict[str, Any] = {}
        self.calls = Path(context.options["calls"]) if "calls" in context.options else None

    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in json.loads(message.value or b"[]"):
            yield SubMessage(name, {"at": message.offset})

    async def handle(self, sub: SubMessage) -> None:
        if self.calls is not None:
            self.calls.touch()
        self.documents[sub.key] = sub.payload["at"]  # type: ignore[index]

    def state(self) -> dict[str, Any]:
        return self.documents


class Newest(Documents):
    async def handle(self, sub: SubMessage) -> None:
        await super().handle(sub)
        self.documents["newest"] = str(sub)


class SetOrder(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in {*json.loads(message.value or b"[]"), "x", "y", "z"}:
            yield SubMessage(name)


class WithoutState(Handler):
    async def handle(self, sub: SubMessage) -> None: ...


class DoesNotOpen(Documents):
    def open(self, context: Context) -> None:
        raise ConnectionError("no index there")
