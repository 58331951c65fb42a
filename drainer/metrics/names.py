"""The metrics of a drain, each with its name, kind, labels, meaning and value.

The collector and docs/reference/metrics.md are made from this list. The names follow Prometheus:
units are base units, and the name of a counter ends in ``_total``. Every metric also has the labels
``topic`` and ``group``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from drainer.model.progress import ENDS
from drainer.model.status import Status

COMMON_LABELS = ("topic", "group")
QUANTILES = (0.5, 0.95, 0.99)
STATES = (
    *("starting", "running", "stopping"),
    *("done", "class-done", "class-waits", "empty", "interrupted", "halted", "failed"),
)
Reads = TypeVar("Reads")
# The values of a metric's own labels, and its value; None if it has no value now.
MetricRow = tuple[tuple[str, ...], float | None]


@dataclass(frozen=True, slots=True)
class Metric(Generic[Reads]):
    """A metric, and how its values are read from a status or from the section of an engine.

    ``kind`` is one of Prometheus' kinds: "gauge", "counter" or "summary". ``labels`` come after
    ``topic`` and ``group``.
    """

    name: str
    kind: str
    meaning: str
    rows: Callable[[Reads], Iterable[MetricRow]]
    labels: tuple[str, ...] = ()

    @classmethod
    def gauge(cls, name: str, path: str, meaning: str) -> Metric[Reads]:
        """Make a gauge of the value at ``path``, such as ``progress.eta_s``.

        It has no value while an attribute on the path is None.
        """
        return cls(f"drainer_{name}", "gauge", meaning, lambda found: (((), _at(found, path)),))

    @classmethod
    def counter(cls, name: str, path: str, meaning: str) -> Metric[Reads]:
        """Make a counter of the value at ``path``, which only rises."""
        total = f"drainer_{name}_total"
        return cls(total, "counter", meaning, lambda found: (((), _at(found, path)),))


@runtime_checkable
class HasMetrics(Protocol):
    """A section that an engine adds to the status, if it has metrics of its own."""

    @property
    def metrics(self) -> Sequence[Metric[Any]]: ...


_gauge, _counter = Metric[Status].gauge, Metric[Status].counter


def _by_partition(name: str, path: str, meaning: str) -> Metric[Status]:
    def rows(status: Status) -> Iterator[MetricRow]:
        return (((str(part.partition),), _at(part, path)) for part in status.progress.partitions)

    return Metric(f"drainer_{name}", "gauge", meaning, rows, ("partition",))


def _by_outcome(name: str, path: str, meaning: str) -> Metric[Status]:
    def rows(status: Status) -> Iterator[MetricRow]:
        return (((each.value,), _at(status, f"{path}.{each.value}")) for each in ENDS)

    return Metric(f"drainer_{name}_total", "counter", meaning, rows, ("outcome",))


def _by_name(name: str, label: str, path: str, meaning: str) -> Metric[Status]:
    def rows(status: Status) -> Iterator[MetricRow]:
        # A name is not cut, because two long names could become the same.
        return (((each,), count) for each, count in dict(_at(status, path)).items())

    return Metric(f"drainer_{name}_total", "counter", meaning, rows, (label,))


def _held_back(status: Status) -> Iterator[MetricRow]:
    return (((str(each.partition),), each.for_s) for each in status.limits.held_back)


def _deepest(status: Status) -> Iterator[MetricRow]:
    yield (), max((depth for _, depth in status.limits.hottest), default=0)


def _by_collector(name: str, meaning: str, *labels: str, kind: str = "gauge") -> Metric[Status]:
    return Metric(f"drainer_{name}", kind, meaning, lambda status: (), labels)


INFO = _by_collector("info", "1, with the drain's id and drainer's version.", "drain_id", "version")
STATE = _by_collector(
    "state", f"1 for the current state, 0 for the others: {', '.join(STATES)}.", "state"
)
EXIT_CODE = _by_collector("exit_code", "Exit code, once the drain has ended.")
STATUS_AGE = _by_collector(
    "status_age_seconds",
    "Age of the status, due twice a second. It grows while a handler blocks the event loop.",
)
LATENCY = _by_collector(
    "handler_latency_seconds",
    "Latency of calls that returned: quantiles over ten seconds, count and sum over this run."
    " Sampled above about 1,000 per second.",
    kind="summary",
)
READ = "delivered, over all runs."
DONE = "by outcome, over all runs: done, dead, failed, skipped."
PENDING = "delivered and not finished."
OF_STATUS = (
    _gauge("elapsed_seconds", "timing.elapsed_s", "Seconds since this run began."),
    _gauge(
        "trouble", "health.in_trouble", "1 while it waits for a broker, a commit or the downstream."
    ),
    _by_partition("start_offset", "start", "Start of the backlog."),
    _by_partition("end_offset", "end", "End of the backlog."),
    _by_partition("position_offset", "position", "Everything below it is delivered."),
    _by_partition("watermark_offset", "watermark", "Every message below it is finished."),
    _by_partition("committed_offset", "committed", "The group's offset; absent if there is none."),
    Metric(
        "drainer_watermark_held_back_seconds",
        "gauge",
        "How long the watermark has stood while others finish; absent while it moves.",
        _held_back,
        ("partition",),
    ),
    _by_partition("backlog_offsets", "left", "Offsets from the watermark to the end."),
    _counter("messages_read", "progress.messages.read", f"Messages {READ}"),
    _by_outcome("messages", "progress.messages", f"Messages {DONE}"),
    _gauge("messages_pending", "progress.messages.pending", f"Messages {PENDING}"),
    _counter("sub_messages_read", "progress.sub_messages.read", f"Sub-messages {READ}"),
    _by_outcome("sub_messages", "progress.sub_messages", f"Sub-messages {DONE}"),
    _gauge("sub_messages_pending", "progress.sub_messages.pending", f"Sub-messages {PENDING}"),
    _by_name(
        *("sub_messages_ruled_out", "rule", "rules.skipped_by"),
        "Sub-messages that a rule took out, over all runs.",
    ),
    _by_name(
        *("sub_messages_undecided", "rule", "rules.undecided"),
        "Sub-messages handled because the rule could not decide, in this run.",
    ),
    _gauge(
        "sub_messages_per_second",
        "progress.rate_now",
        "Rate of sub-messages over the last five seconds.",
    ),
    _gauge(
        "eta_seconds",
        "progress.eta_s",
        "Seconds until the end at the current rate; absent while nothing moves.",
    ),
    _gauge(
        "behind_seconds",
        "progress.lag.seconds",
        "Seconds since the log ended where the drain is now; absent unless it follows its topic.",
    ),
    _gauge(
        "deadline_seconds",
        "progress.deadline.left_s",
        "Seconds until --deadline; negative once it has passed.",
    ),
    _gauge(
        "deadline_margin_seconds",
        "progress.deadline.margin_s",
        "Seconds to spare before --deadline at the current rate; negative if it will be missed.",
    ),
    _gauge(
        "in_flight", "limits.in_flight", "Sub-messages in flight, on average over half a second."
    ),
    _gauge("concurrency", "limits.concurrency", "Maximum calls in flight."),
    _gauge("lanes", "limits.lanes", "Lanes in which a sub-message waits or is in flight."),
    _gauge("lanes_ready", "limits.lanes_ready", "Lanes that only wait for a worker."),
    _gauge("lanes_parked", "failures.parked_lanes", "Lanes parked behind a failure."),
    Metric(
        "drainer_lane_depth_max", "gauge", "Sub-messages waiting in the hottest lane.", _deepest
    ),
    _counter("failures", "failures.failures", "Failed attempts in this run, timeouts included."),
    _by_name(
        *("errors", "error", "failures.error_types"),
        "Failed attempts by error class: 50 at most, then `other`.",
    ),
    _counter("timeouts", "failures.timeouts", "Attempts that exceeded their timeout, in this run."),
    _counter("retries", "failures.retries", "Retries granted in this run."),
    _gauge("retries_waiting", "failures.waiting", "Sub-messages that wait for a retry."),
    _gauge("threads_late", "failures.late", "Timed-out sub-messages whose thread still runs."),
    _gauge("breaker_open", "failures.in_outage", "1 during an outage downstream."),
    _counter("outages", "failures.outages", "Outages in this run: openings of the breaker."),
    _gauge("buffered_bytes", "limits.buffered_bytes", "Memory of pending messages, estimated."),
    _gauge("buffer_limit_bytes", "limits.buffer_bytes", "Limit on the memory of pending messages."),
    _gauge("plan_age_seconds", "timing.plan_age_s", "Seconds since the offset plan was written."),
)
METRICS = (INFO, STATE, EXIT_CODE, STATUS_AGE, *OF_STATUS, LATENCY)


def _at(found: Any, path: str) -> Any:
    """Return the attribute at a path with dots; None if an attribute on the way is None."""
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found
