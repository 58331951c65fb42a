"""The demo from start to finish: fill, estimate, drain, interrupt, resume, verify, compare."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson

import drainer
from drainer.demo.fill import fill
from drainer.errors import EXIT_INTERRUPTED, DrainerError
from drainer.handler import Handler
from drainer.insight.bounds import forecast
from drainer.kafka.cluster import Cluster
from drainer.message import Message, Origin, SubMessage
from drainer.model.order import Order
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.examine import ensure_all, examine
from drainer.store.plan_file import PlanFile
from drainer.view.figures import count, duration
from drainer.view.live import progress_view
from drainer.view.page import bars
from drainer.view.preview import preview_page
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal

CUSTOMER = b"customer-4711"  # The message key that all messages were given, months ago.
UPDATE_S = 2.0  # The downstream takes this long for one update: an embedding and a write.
UPDATES_PER_MESSAGE = 50
TWO_WEEKS_S = 14 * 24 * 3600
MESSAGES = int(TWO_WEEKS_S / UPDATE_S) // UPDATES_PER_MESSAGE
DOCUMENTS = 300_000
CONCURRENCY = 50_000
SEED = 20251121

INTERRUPT_AT = 0.4  # The demo interrupts itself at this share of the backlog.
GROUP = "drainer-demo"
USUAL_CONCURRENCY = 1000


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
    """The downstream. It keeps each document's version, and counts violations of the order."""

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


class Demo:
    """One run of the demo, on a topic and group of its own, which are removed at the end."""

    def __init__(
        self, terminal: Terminal, cluster: Cluster, folder: Path, messages: int, concurrency: int
    ) -> None:
        self._terminal = terminal
        self._cluster = cluster
        self._messages = messages
        self._updates = messages * UPDATES_PER_MESSAGE
        self._concurrency = concurrency
        self._topic = f"drainer-demo-{secrets.token_hex(3)}"
        self._group = f"{GROUP}-{secrets.token_hex(3)}"
        self._file = PlanFile(folder / f"{self._topic}.plan.json")
        self._running = LocalSettings(concurrency=concurrency, grace_s=10 + UPDATE_S)

    def perform(self) -> None:
        """Play the demo from start to finish, and remove the topic and the group in any case."""
        print_line, cluster = self._terminal.print_line, self._cluster
        print_line("6 pm. A customer goes live at 8 am, and their backlog is on one partition")
        cluster.create_topic(self._topic, 1)
        records = ((CUSTOMER, value, 0) for value in values(self._messages))
        fill(cluster.settings, self._topic, records)
        print_line(
            f"{count(self._messages)} messages, one key, {count(self._updates)} updates of"
            f" {duration(UPDATE_S)} each: {duration(self._updates * UPDATE_S)} one after the other"
        )
        try:
            print_line("How long will it take?")
            estimates = self._estimate()
            print_line("Drain it, and interrupt it part-way")
            drain = partial(
                drainer.drain,
                topic=self._topic,
                group=self._group,
                from_="earliest",
                on_preview=lambda preview: self._terminal.preview(preview_page(preview)),
            )
            first = self._drain(drain, interrupt_at=self._messages * INTERRUPT_AT)
            print_line("Resume it")
            last = self._drain(drainer.resume)
            print_line("Was anything lost?")
            for sentence in self._verify(first, last):
                print_line(f"✓ {sentence}")
            took = first.last.timing.elapsed_s + last.last.timing.elapsed_s
            rows = (*estimates, ("drainer, measured", took, duration(took)))
            self._terminal.items(bars("until the customer is onboarded", "", rows))
        finally:
            cluster.delete_topic(self._topic)
            cluster.delete_group(self._group)

    def _estimate(self) -> list[tuple[str, float, str]]:
        estimate = drainer.estimate(
            topic=self._topic,
            group=self._group,
            from_="earliest",
            handler=Reindex,
            client={"bootstrap.servers": self._cluster.settings.bootstrap_servers},
            latency=f"{UPDATE_S:g}s",
            settings=self._running,
            on_message=self._terminal.print_line,
        )
        rows = []
        for order, concurrency in (
            (Order.PARTITION, 1),
            (Order.KEY, self._concurrency),
            (Order.SUB_KEY, min(USUAL_CONCURRENCY, self._concurrency)),
            (Order.SUB_KEY, self._concurrency),
        ):
            seconds = forecast(estimate.workload, estimate.setting, order, concurrency).seconds
            label = f"{order.value} order, {count(concurrency)} at once"
            rows.append((label, seconds, duration(seconds)))
        self._terminal.items(bars("estimated from a sample", "", rows))
        return rows

    def _drain(
        self, drain: Callable[..., Summary], *, interrupt_at: float | None = None
    ) -> Summary:
        """Drain or resume, and press Ctrl-C once ``interrupt_at`` messages are finished."""
        due = interrupt_at
        with progress_view(self._terminal) as view:

            def observe(status: Status) -> None:
                nonlocal due
                view.update(status)
                if due is not None and status.progress.messages.finished >= due:
                    due = None
                    os.kill(os.getpid(), signal.SIGINT)

            try:
                summary = drain(
                    plan=self._file.path,
                    client={"bootstrap.servers": self._cluster.settings.bootstrap_servers},
                    handler=Reindex,
                    settings=self._running,
                    on_status=observe,
                    on_message=self._terminal.print_line,
                )
            except KeyboardInterrupt as error:
                if not isinstance(error.__cause__, DrainerError):
                    raise
                summary = error.__cause__.summary
        show_summary(self._terminal, summary)
        return summary

    def _verify(self, first: Summary, last: Summary) -> list[str]:
        """Ensure that nothing was lost, and return the checks, a sentence for each.

        Raises DrainerError when one of them failed.
        """
        ensure_all(examine(self._cluster, self._file.load()))
        index = Reindex.index
        # A document's last update in the backlog has its newest version, so later ones replace
        # earlier ones here.
        newest = {sub.key: sub.payload for _, subs in self._split() for sub in subs}
        checks = [
            ("the first run reported its interruption", first.exit_code == EXIT_INTERRUPTED),
            ("the account adds up", first.conserved and last.conserved),
            (f"{last.messages.done:,} messages are done", last.messages.done == self._messages),
            (
                f"{index.updates:,} updates were made, none of them twice",
                index.updates == self._updates == last.sub_messages.done,
            ),
            (f"all {len(newest):,} documents have their newest version", index.versions == newest),
            ("no document was updated out of order", index.out_of_order == 0),
            ("no document was updated twice at once", index.overlapping == 0),
        ]
        for sentence, is_true in checks:
            if not is_true:
                raise DrainerError(f"the demo failed: this is not true: {sentence}")
        return [sentence for sentence, _ in checks]

    def _split(self) -> Iterator[tuple[Message, Sequence[SubMessage]]]:
        origin = Origin(self._topic, "", 0)
        for offset, value in enumerate(values(self._messages)):
            message = Message(origin, offset, CUSTOMER, value)
            yield message, list(Reindex().split(message))
