"""Handlers that have something peculiar, for drains on Spark; loaded by path in Spark's workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import drainer
from drainer import Context, Message, SubMessage
from spark.recording import Recorder


class Whole(Recorder):
    """Each message is one sub-message, by its own key."""

    split = drainer.Handler.split  # type: ignore[assignment]


class Turning(Recorder):
    """Turns the sub-messages of a message round whenever it is asked for them again."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        seen = Path(f"{self.options['record']}.seen-{message.offset}")
        subs = list(super().split(message))
        if seen.exists():
            subs.reverse()
        seen.touch()
        yield from subs


class Shut(Recorder):
    """Can't be opened."""

    async def open(self, context: Context) -> None:
        raise ConnectionError("the index is down")
