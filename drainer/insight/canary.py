"""A canary: handles the first messages for real, and keeps the plan to go on from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, Refused
from drainer.insight.first_messages import OVER, CanaryOver, FirstMessages, Timed
from drainer.insight.forecast.distribution import Distribution
from drainer.kafka.cluster import Cluster
from drainer.operations.drain import drain
from drainer.operations.engine import InProcess
from drainer.operations.start import Prepared


@dataclass(frozen=True, slots=True)
class Canary:
    """How the first messages went. ``latency`` is None when nothing was handled."""

    summary: Summary
    latency: Distribution | None
    calls: int

    @property
    def over(self) -> bool:
        """Whether all of it was handled, whatever became of it."""
        return self.summary.cause is None


def send_canary(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    first: int,
    observe: Callable[[Status], None],
    say: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
) -> Canary:
    """Drains the first messages as any drain does: journal, plan, commits, failure policy.

    Raises as ``drain`` does, and Refused for a drain on Spark.
    """
    if not isinstance(prepared.engine, InProcess):
        raise Refused(
            "a canary runs in this process: the first messages are no work for Spark",
            hint="the rest of it can be resumed on Spark",
        )
    timed = Timed(prepared.handler)
    engine = InProcess(lambda source, dispatcher: FirstMessages(source, first, dispatcher))

    def observe_canary(status: Status) -> None:
        # That it stops by itself is no news.
        over = status.stopping is not None and status.stopping.startswith(OVER)
        observe(replace(status, stopping=None) if over else status)

    summary = drain(
        cluster,
        replace(prepared, handler=timed.handler, engine=engine),
        running,
        observe_canary,
        say,
        give_up,
    )
    if isinstance(summary.cause, CanaryOver):
        code = EXIT_DEAD_LETTERS if summary.sub_messages.given_up else EXIT_DONE
        summary = replace(summary, status="canary", exit_code=code, cause=None)
    return Canary(summary, timed.latency, len(timed.times_s))
