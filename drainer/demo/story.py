"""The demo from start to finish: fill, estimate, drain, interrupt, resume, verify, compare."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drainer.demo.emergency import CUSTOMER, UPDATES_PER_MESSAGE, Index, Reindex, values
from drainer.demo.fill import create_topic, fill
from drainer.engine.loop import hurried_interpreter
from drainer.errors import EXIT_INTERRUPTED, DrainerError
from drainer.insight.forecast.simulate import Simulation
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage
from drainer.model.order import Order
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.drain import Callbacks, drain
from drainer.operations.examine import ensure_all, examine
from drainer.operations.resume import prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.store.plan_file import PlanFile
from drainer.view.figures import count, duration
from drainer.view.live import progress_view
from drainer.view.page import bars
from drainer.view.preview import preview_page
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal

REFERENCE = "drainer.demo.emergency:Reindex"
INTERRUPT_AT = 0.4  # of the backlog
GROUP = "drainer-demo"
USUAL_CONCURRENCY = 1000


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the emergency: messages, seconds of an update, updates in flight."""

    messages: int
    update_s: float
    concurrency: int

    @property
    def sub_messages(self) -> int:
        return self.messages * UPDATES_PER_MESSAGE

    @property
    def serial_s(self) -> float:
        return self.sub_messages * self.update_s


class Demo:
    """One performance, on a topic and group of its own, which ``close`` removes."""

    def __init__(self, settings: ClientSettings, folder: Path, size: Size) -> None:
        self.settings = settings
        self.size = size
        self.topic = f"drainer-demo-{secrets.token_hex(3)}"
        self.group = f"{GROUP}-{secrets.token_hex(3)}"
        self.index = Index()
        self.plan_path = folder / f"{self.topic}.plan.json"
        self.running = LocalSettings(concurrency=size.concurrency, grace_s=10 + size.update_s)
        self._handler = LoadedHandler(REFERENCE, Reindex(self.index, size.update_s))

    def fill(self) -> int:
        """Makes the topic, one partition, and gives every message the same key."""
        create_topic(self.settings, self.topic)
        return fill(
            self.settings,
            self.topic,
            ((CUSTOMER, value, 0) for value in values(self.size.messages)),
        )

    def estimate(self, order: Order, concurrency: int) -> float:
        """Seconds that the backlog takes, from the real lanes on a virtual clock."""
        with hurried_interpreter():
            simulation = Simulation(
                self._split(),
                order=order,
                concurrency=concurrency,
                latency_s=lambda _: self.size.update_s,
            )
            return simulation.run().seconds

    def prepare(self, cluster: Cluster) -> Prepared:
        request = Request(
            self.topic, self.group, self._handler, from_="earliest", plan_path=self.plan_path
        )
        return prepare(cluster, request, self.running)

    def prepare_resume(self, cluster: Cluster) -> Prepared:
        file = PlanFile(self.plan_path)
        prepared = prepare_resume(cluster, file, file.load(), self.running)
        return replace(prepared, handler=self._handler)  # the downstream outlives the drain

    def drain(
        self,
        cluster: Cluster,
        prepared: Prepared,
        observe: Callable[[Status], None],
        print_line: Callable[[str], None],
        *,
        interrupt: bool,
    ) -> Summary:
        """Drains; with ``interrupt``, presses Ctrl-C on itself part-way."""
        due = self.size.messages * INTERRUPT_AT if interrupt else None

        def watch(status: Status) -> None:
            nonlocal due
            observe(status)
            if due is not None and status.progress.messages.finished >= due:
                due = None
                os.kill(os.getpid(), signal.SIGINT)

        return drain(cluster, prepared, self.running, Callbacks(watch, print_line))

    def verify(self, cluster: Cluster, first: Summary, last: Summary) -> list[str]:
        """Ensure that the drain did all it should. Returns the checks, a sentence each; raises
        DrainerError when one fails."""
        ensure_all(examine(cluster, PlanFile(self.plan_path).load()))
        index, size = self.index, self.size
        newest = {
            sub.key: sub.payload for _, subs in self._split() for sub in subs
        }  # of each document, in the backlog's order
        checks = [
            ("the first run reported its interruption", first.exit_code == EXIT_INTERRUPTED),
            ("the account adds up", first.conserved and last.conserved),
            (f"{last.messages.done:,} messages are done", last.messages.done == size.messages),
            (
                f"{index.updates:,} updates were made, none of them twice",
                index.updates == size.sub_messages == last.sub_messages.done,
            ),
            (f"all {len(newest):,} documents have their newest version", index.versions == newest),
            ("no document was updated out of order", index.out_of_order == 0),
            ("no document was updated twice at once", index.overlapping == 0),
        ]
        for sentence, is_true in checks:
            if not is_true:
                raise DrainerError(f"the demo failed: this is not true: {sentence}")
        return [sentence for sentence, _ in checks]

    def close(self, cluster: Cluster) -> None:
        """Removes the topic, the group and the plan."""
        cluster.delete_topic(self.topic)
        cluster.delete_group(self.group)
        self.plan_path.unlink(missing_ok=True)

    def _split(self) -> Iterator[tuple[Message, Sequence[SubMessage]]]:
        handler = Reindex()
        origin = Origin(self.topic, "", 0)
        for offset, value in enumerate(values(self.size.messages)):
            message = Message(origin, offset, CUSTOMER, value)
            yield message, list(handler.split(message))


def perform(terminal: Terminal, story: Demo, cluster: Cluster) -> None:
    """Plays the demo from start to finish, and cleans up whatever happens."""
    size = story.size
    terminal.print_line("6 pm. A customer goes live at 8 am, and their backlog is on one partition")
    story.fill()
    terminal.print_line(
        f"{count(size.messages)} messages, one key, {count(size.sub_messages)} updates of"
        f" {duration(size.update_s)} each: {duration(size.serial_s)} one after the other"
    )
    try:
        terminal.print_line("How long will it take?")
        estimates = _estimate(terminal, story)
        terminal.print_line("Drain it; Ctrl-C part-way")
        prepared = story.prepare(cluster)
        terminal.preview(preview_page(prepared.action))
        with progress_view(terminal) as view:
            first = story.drain(cluster, prepared, view.update, terminal.print_line, interrupt=True)
        show_summary(terminal, first)
        terminal.print_line("Resume it")
        prepared = story.prepare_resume(cluster)
        with progress_view(terminal) as view:
            last = story.drain(cluster, prepared, view.update, terminal.print_line, interrupt=False)
        show_summary(terminal, last)
        terminal.print_line("Was anything lost?")
        for sentence in story.verify(cluster, first, last):
            terminal.print_line(f"✓ {sentence}")
        took = first.last.timing.elapsed_s + last.last.timing.elapsed_s
        rows = (*estimates, ("drainer, measured", took, duration(took)))
        terminal.items(bars("until the customer is onboarded", "", rows))
    finally:
        story.close(cluster)


def _estimate(terminal: Terminal, story: Demo) -> list[tuple[str, float, str]]:
    rows = []
    for order, concurrency in (
        (Order.PARTITION, 1),
        (Order.KEY, story.size.concurrency),
        (Order.SUB_KEY, min(USUAL_CONCURRENCY, story.size.concurrency)),
        (Order.SUB_KEY, story.size.concurrency),
    ):
        seconds = story.estimate(order, concurrency)
        label = f"{order.value} order, {count(concurrency)} at once"
        rows.append((label, seconds, duration(seconds)))
    terminal.items(bars("estimated by simulating the drain from a sample", "", rows))
    return rows
