"""Watches how the consumers of a group take over after a drain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from drainer.engine.runtime import Runtime
from drainer.engine.signals import interrupt, signals_to
from drainer.errors import Refused
from drainer.kafka.cluster import Cluster
from drainer.model.hand_over import HandOver, Look, PartitionHandOver
from drainer.model.listed import round_duration
from drainer.model.status import Summary
from drainer.model.terms import Terms

LOOK_EVERY_S = 0.5


def watch_hand_over(
    cluster: Cluster,
    terms: Terms,
    summary: Summary,
    most_s: float,
    runtime: Runtime,
    show: Callable[[], None] = lambda: None,
) -> HandOver:
    """Look until consumers have taken over all drained partitions, but no longer than ``most_s``.

    ``show`` is called at each look, since health checks fail if no status is shown for long. The
    lock on the group must have been released. This changes nothing. SIGINT, SIGTERM and SIGHUP end
    it.
    """
    begun_s = runtime.uptime()
    # Everything is done, so the drain has committed its watermarks. Consumers may have committed
    # other offsets since.
    found = HandOver(
        {
            number: PartitionHandOver(part.watermark, unread_s=begun_s)
            for number, part in summary.partitions.items()
        }
    )
    try:
        with signals_to(interrupt):
            while not found.is_over(runtime.uptime()):
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
