"""Handlers for `drainer certify`; the tests copy this file. `calls` is a file that handle makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from drainer import Context, Handler, Message, SubMessage


class Documents(Handler):
    def open(self, context: Context) -> None:
        self.calls = Path(context.options["calls"])

    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in json.loads(message.value or b"[]"):
            yield SubMessage(name, {"at": message.offset})

    async def handle(self, sub: SubMessage) -> None:
        self.calls.touch()


class SetOrder(Documents):
    def split(self, message: Message) -> Iterator[SubMessage]:
        for name in {*json.loads(message.value or b"[]"), "x", "y", "z"}:
            yield SubMessage(name)


class DoesNotOpen(Documents):
    def open(self, context: Context) -> None:
        raise ConnectionError("no index there")
