"""The emergency of the demo: one partition, one message key, and two weeks of serial work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from drainer.handler import Handler
from drainer.message import Message, SubMessage

CUSTOMER = b"customer-4711"  # The message key that all messages were given, months ago.
UPDATE_S = 2.0  # The time that the downstream takes for one update: an embedding and a write.
UPDATES_PER_MESSAGE = 50
TWO_WEEKS_S = 14 * 24 * 3600
MESSAGES = int(TWO_WEEKS_S / UPDATE_S) // UPDATES_PER_MESSAGE
DOCUMENTS = 300_000
CONCURRENCY = 50_000
SEED = 20251121


def values(messages: int, seed: int = SEED) -> Iterator[bytes]:
    """Yield the values of the messages. Each names the documents that it updates."""
    chance = random.Random(seed)
    for number in range(messages):
        documents = chance.sample(range(DOCUMENTS), UPDATES_PER_MESSAGE)
        yield orjson.dumps(
            {
                "event": number,
                "updates": [{"id": f"doc-{d:06}", "version": number} for d in documents],
            }
        )


@dataclass(slots=True)
class Index:
    """The downstream. It keeps each document's version, and counts what must not happen."""

    versions: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    out_of_order: int = 0
    overlapping: int = 0
    busy: set[str] = field(default_factory=set)

    async def update(self, document: str, version: int) -> None:
        self.overlapping += document in self.busy
        self.busy.add(document)
        try:
            await asyncio.sleep(UPDATE_S)
            self.out_of_order += self.versions.get(document, -1) > version
            self.versions[document] = version
            self.updates += 1
        finally:
            self.busy.discard(document)


class Reindex(Handler):
    """A handler whose messages update fifty documents each.

    Updates of different documents commute.
    """

    index = Index()  # The downstream outlives each drain.

    def split(self, message: Message) -> Iterable[SubMessage]:
        for update in orjson.loads(message.value or b"{}")["updates"]:
            yield SubMessage(update["id"], update["version"])

    async def handle(self, sub: SubMessage) -> None:
        await self.index.update(str(sub.key), sub.payload)
