"""The demo as it is shown: each act of the story, and what the person sees of it."""

from __future__ import annotations

from drainer.core.order import Order
from drainer.demo.story import Demo
from drainer.kafka.cluster import Cluster
from drainer.view.figures import count, duration
from drainer.view.live import progress_view
from drainer.view.page import Bars
from drainer.view.preview import show_preview
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal

USUAL_CONCURRENCY = 1000


def perform(terminal: Terminal, story: Demo, cluster: Cluster) -> None:
    """Plays the demo from start to finish, and cleans up whatever happens."""
    size = story.size
    terminal.say("6 pm. A customer goes live at 8 am, and their backlog is on one partition")
    story.fill()
    terminal.say(
        f"{count(size.messages)} messages, one key, {count(size.sub_messages)} updates of"
        f" {duration(size.update_s)} each: {duration(size.serial_s)} one after the other"
    )
    try:
        terminal.say("How long will it take?")
        estimates = _estimate(terminal, story)
        terminal.say("Drain it; Ctrl-C part-way")
        prepared = story.prepare(cluster)
        show_preview(terminal, prepared.action)
        with progress_view(terminal) as view:
            first = story.drain(cluster, prepared, view.update, terminal.say, interrupt=True)
        show_summary(terminal, first)
        terminal.say("Resume it")
        prepared = story.prepare_resume(cluster)
        with progress_view(terminal) as view:
            last = story.drain(cluster, prepared, view.update, terminal.say, interrupt=False)
        show_summary(terminal, last)
        terminal.say("Was anything lost?")
        for sentence in story.verify(cluster, first, last):
            terminal.say(f"✓ {sentence}")
        took = first.elapsed_s + last.elapsed_s
        rows = (*estimates, ("drainer, measured", took, duration(took)))
        terminal.items(Bars("Until the customer is onboarded", rows, log=True))
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
    title = "Estimated with the real lanes on a virtual clock"
    terminal.items(Bars(title, tuple(rows), log=True))
    return rows
