"""Watches how the consumers of a group take over after a drain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.engine.signals import interrupt, signals_to
from drainer.errors import EXIT_DONE, EXIT_FOUND, EXIT_INTERRUPTED, DrainerError, Refused
from drainer.kafka.cluster import Cluster
from drainer.model.account import Event, EventKind
from drainer.model.hand_over import HandOver, Look, PartitionHandOver
from drainer.model.listed import round_duration
from drainer.model.plan import OffsetPlan
from drainer.model.status import Summary
from drainer.model.terms import Terms
from drainer.store.saved_plan import SavedPlan

LOOK_EVERY_S = 0.5
TERMINATED = "interrupted by SIGTERM"


def handed_over(
    cluster: Cluster,
    file: SavedPlan,
    terms: Terms,
    summary: Summary,
    most_s: float,
    print_line: Callable[[str], None],
    runtime: Runtime = THIS_PROCESS,
    *,
    show: Callable[[], None] = lambda: None,
) -> Summary:
    """Watch how consumers take over, if that is wanted, everything is done, and nobody saw it yet.

    If they take over, the plan's history notes that. If not, or if the process is killed meanwhile,
    the next command that finds the drain over watches again.
    """
    was_seen = any(each.what is EventKind.HANDED_OVER for each in summary.history[-1:])
    if not most_s or was_seen or not (start := summary.begin_words):
        return summary
    words = f"{start} drainer watches them for up to {round_duration(most_s)}"
    begin = partial(print_line, words)
    found = watch_hand_over(cluster, terms, summary, most_s, runtime, show, begin)
    if found.is_good:
        try:
            _note(file, found, runtime)
        except DrainerError as error:
            print_line(f"warning: the plan does not have the hand-over: {error}")
    code = summary.exit_code
    if code == EXIT_DONE and not found.is_good:
        # A supervisor that sends SIGTERM starts the command again, and that watches again.
        code = EXIT_INTERRUPTED if found.cut_short == TERMINATED else EXIT_FOUND
    return replace(summary, hand_over=found, exit_code=code)


def _note(file: SavedPlan, found: HandOver, runtime: Runtime) -> None:
    """Note the hand-over in the history of the plan, unless somebody has gone on with the plan."""
    file.acquire()
    try:
        terms, account = (plan := file.load().plan).terms, plan.account
        if account.over is not None:
            what = EventKind.HANDED_OVER, runtime.user(), None, (str(found),)
            file.write(OffsetPlan(terms, account.with_event(Event(runtime.now(), *what))))
    finally:
        file.release()


def watch_hand_over(
    cluster: Cluster,
    terms: Terms,
    summary: Summary,
    most_s: float,
    runtime: Runtime,
    show: Callable[[], None] = lambda: None,
    begin: Callable[[], None] = lambda: None,
) -> HandOver:
    """Look until consumers have taken over all drained partitions, but no longer than ``most_s``.

    ``begin`` is called first, and ``show`` at each look, since health checks fail if no status is
    shown for long. The lock on the group must have been released. This changes nothing. SIGINT,
    SIGTERM and SIGHUP end it.
    """
    ended_s = begun_s = runtime.uptime()
    if (ended := summary.ended_before) is not None:
        ended_s -= (runtime.wall() - datetime.fromisoformat(ended)).total_seconds()
    # Everything is done, so the drain has committed its watermarks. Consumers may have committed
    # other offsets since.
    found = HandOver(
        {
            number: PartitionHandOver(part.watermark, unread_s=ended_s)
            for number, part in summary.partitions.items()
        }
    )
    try:
        with signals_to(interrupt):
            begin()
            while not found.is_over(runtime.uptime(), begun_s):
                show()
                why = ""
                try:
                    found = found.after(_look(cluster, terms, tuple(found.partitions), runtime))
                except Refused as error:  # Without an answer, the next look will show it.
                    why = f": {error}"
                if runtime.uptime() - begun_s >= most_s:
                    return replace(found, cut_short=f"after {round_duration(most_s)}{why}")
                runtime.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt as error:
        return replace(found, cut_short=str(error) or "interrupted")
    return found


def _look(
    cluster: Cluster, terms: Terms, numbers: tuple[int, ...], runtime: Runtime
) -> dict[int, Look]:
    # Logs are looked at last, so whatever a consumer had read before its commit is in them.
    committed = cluster.committed(terms.group, terms.topic, numbers)
    at_s, readers = runtime.uptime(), cluster.readers(terms.group, terms.topic)
    logs = cluster.log_bounds(terms.topic, numbers, terms.isolation)
    return {
        n: Look(at_s, committed[n], readers.get(n), log.start, log.end, log.high_watermark)
        for n, log in logs.items()
    }
