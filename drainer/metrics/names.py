"""Every metric that a drain serves: its name, kind, labels, meaning and value, in this one place.

The collector and docs/metrics.md are made of these. Names are Prometheus' way: base units, and
``_total`` for what only rises. Each metric has the labels ``topic`` and ``group`` beside its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from drainer.core.progress import Outcome
from drainer.engine.status import Metric, Row, Status, at
from drainer.escape import encodable

COMMON_LABELS = ("topic", "group")
QUANTILES = (0.5, 0.95, 0.99)
STATES = (
    *("starting", "running", "stopping"),
    *("done", "class-done", "empty", "interrupted", "halted", "failed"),
)
_gauge, _counter = Metric[Status].gauge, Metric[Status].counter


def _by_partition(name: str, path: str, meaning: str) -> Metric[Status]:
    def rows(status: Status) -> Iterator[Row]:
        return (((str(part.partition),), at(part, path)) for part in status.partitions)

    return Metric(f"drainer_{name}", "gauge", meaning, rows, ("partition",))


def _by_outcome(name: str, path: str, meaning: str) -> Metric[Status]:
    def rows(status: Status) -> Iterator[Row]:
        return (((each.value,), at(status, f"{path}.{each.value}")) for each in Outcome)

    return Metric(f"drainer_{name}_total", "counter", meaning, rows, ("outcome",))


def _ruled_out(status: Status) -> Iterator[Row]:
    # The whole name, for two that were cut could be one. Half a surrogate pair would fail a scrape.
    return (((encodable(rule),), count) for rule, count in status.rules.skipped_by.items())


def _undecided(status: Status) -> Iterator[Row]:
    return (((encodable(rule),), count) for rule, count in status.rules.undecided.items())


def _errors(status: Status) -> Iterator[Row]:
    return (((name,), count) for name, count in status.failures.error_types)


def _deepest(status: Status) -> Iterator[Row]:
    yield (), max((depth for _, depth in status.hottest), default=0)


def _by_collector(name: str, meaning: str, *labels: str, kind: str = "gauge") -> Metric[Status]:
    return Metric(f"drainer_{name}", kind, meaning, lambda status: (), labels)


INFO = _by_collector(
    "info", "1; which drain this is, and drainer's version.", "drain_id", "version"
)
STATE = _by_collector(
    "state", f"1 for the state that it is in, 0 for the others: {', '.join(STATES)}.", "state"
)
EXIT_CODE = _by_collector("exit_code", "The exit code, once it has ended.")
STATUS_AGE = _by_collector(
    "status_age_seconds",
    "Since the drain reported all this, twice a second. Grows while a handler blocks the event"
    " loop.",
)
LATENCY = _by_collector(
    "handler_latency_seconds",
    "How long handle takes when it returns: quantiles of the last ten seconds or so; count and sum"
    " of this run. A sample while there are more than 5,000 a second.",
    kind="summary",
)
READ = "delivered, over all runs of this drain."
DONE = "done, over all runs, by outcome: done, dead, failed, skipped."
PENDING = "delivered and not done."
OF_STATUS = (
    _gauge("elapsed_seconds", "elapsed_s", "Since this run began."),
    _gauge("trouble", "in_trouble", "1 while it waits: for a broker, a commit, the downstream."),
    _by_partition("start_offset", "start", "Where the frozen backlog begins."),
    _by_partition("end_offset", "end", "Where the frozen backlog ends."),
    _by_partition("position_offset", "position", "Nothing below it remains to be delivered."),
    _by_partition("watermark_offset", "watermark", "Everything below it is done."),
    _by_partition("committed_offset", "committed", "The group's offset; missing if it has none."),
    _by_partition("backlog_offsets", "left", "From the watermark to the end of the backlog."),
    _counter("messages_read", "messages.read", f"Messages {READ}"),
    _by_outcome("messages", "messages", f"Messages {DONE}"),
    _gauge("messages_pending", "messages.pending", f"Messages {PENDING}"),
    _counter("sub_messages_read", "sub_messages.read", f"Sub-messages {READ}"),
    _by_outcome("sub_messages", "sub_messages", f"Sub-messages {DONE}"),
    _gauge("sub_messages_pending", "sub_messages.pending", f"Sub-messages {PENDING}"),
    Metric(
        "drainer_sub_messages_ruled_out_total",
        "counter",
        "Of these, what a rule skipped, by the rule's name.",
        _ruled_out,
        ("rule",),
    ),
    Metric(
        "drainer_sub_messages_undecided_total",
        "counter",
        "Sub-messages that a rule could not decide on, and did not take out, in this run.",
        _undecided,
        ("rule",),
    ),
    _gauge("sub_messages_per_second", "rate_now", "Sub-messages done, over the last five seconds."),
    _gauge(
        "eta_seconds", "eta_s", "Until the end at the rate of now; missing while nothing moves."
    ),
    _gauge(
        "deadline_seconds",
        "deadline.left_s",
        "Until --deadline; below zero when it has passed.",
    ),
    _gauge(
        "deadline_margin_seconds",
        "deadline.margin_s",
        "By how much --deadline will be met at the rate of now; below zero if it will be missed.",
    ),
    _gauge("in_flight", "running", "Sub-messages in the handler."),
    _gauge("concurrency", "concurrency", "How many may be in the handler at once."),
    _gauge("lanes", "lanes", "Sub-keys with something waiting or running."),
    _gauge("lanes_ready", "lanes_ready", "Lanes that only wait for a worker."),
    _gauge("lanes_parked", "failures.parked_lanes", "Lanes parked behind a failure."),
    Metric(
        "drainer_lane_depth_max", "gauge", "Sub-messages waiting in the hottest lane.", _deepest
    ),
    _counter("failures", "failures.failures", "Attempts that failed in this run, or timed out."),
    Metric(
        "drainer_errors_total",
        "counter",
        "The same by the name of the error's class, 50 at most, then `other`.",
        _errors,
        ("error",),
    ),
    _counter("timeouts", "failures.timeouts", "Attempts longer than --timeout, in this run."),
    _counter("retries", "failures.retries", "Further attempts that were granted, in this run."),
    _gauge("retries_waiting", "failures.waiting", "Sub-messages whose next attempt is not due."),
    _gauge("threads_late", "failures.late", "Sub-messages whose thread goes on after its time."),
    _gauge("breaker_open", "failures.in_outage", "1 during an outage downstream."),
    _counter("outages", "failures.outages", "Outages in this run: openings of the breaker."),
    _gauge("buffered_bytes", "buffered_bytes", "Memory of what is pending, estimated."),
    _gauge("buffer_limit_bytes", "buffer_bytes", "What --buffer allows."),
    _gauge("plan_age_seconds", "plan_age_s", "Since the offset plan was last written."),
)
METRICS = (INFO, STATE, EXIT_CODE, STATUS_AGE, *OF_STATUS, LATENCY)
