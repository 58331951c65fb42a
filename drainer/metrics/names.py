"""Every metric that a drain serves: its name, kind, labels and meaning, in this one place.

The collector, docs/metrics.md and the dashboard are made of these. Names are Prometheus' way: base
units, and ``_total`` for what only rises. Each metric has the labels ``topic`` and ``group``,
beside its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

COMMON_LABELS = ("topic", "group")
QUANTILES = (0.5, 0.95, 0.99)


class Kind(Enum):
    """Prometheus' word for what a metric is."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """``labels`` are its own, beside those that all have."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"drainer_{name}", Kind.GAUGE, meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"drainer_{name}_total", Kind.COUNTER, meaning, labels)


INFO = _gauge("info", "1; which drain this is, and drainer's version.", "drain_id", "version")
STATE = _gauge(
    "state",
    "1 for the state that it is in, 0 for the others: starting, running, stopping, done, empty,"
    " interrupted, halted, failed.",
    "state",
)
EXIT_CODE = _gauge("exit_code", "The exit code, once it has ended.")
ELAPSED = _gauge("elapsed_seconds", "Since this run began.")
STATUS_AGE = _gauge(
    "status_age_seconds",
    "Since the drain told all this, twice a second. Grows while a handler blocks the event loop.",
)
TROUBLE = _gauge("trouble", "1 while it waits something out: a broker, a commit, the downstream.")

START = _gauge("start_offset", "Where the frozen backlog begins.", "partition")
END = _gauge("end_offset", "Where the frozen backlog ends.", "partition")
POSITION = _gauge("position_offset", "Nothing below it remains to be delivered.", "partition")
WATERMARK = _gauge("watermark_offset", "Everything below it is finished.", "partition")
COMMITTED = _gauge("committed_offset", "The group's offset; missing if it has none.", "partition")
BACKLOG = _gauge("backlog_offsets", "From the watermark to the end of the backlog.", "partition")

MESSAGES_READ = _counter("messages_read", "Messages delivered, over all runs of this drain.")
MESSAGES = _counter(
    "messages", "Messages finished, over all runs: done, dead, failed, skipped.", "outcome"
)
MESSAGES_PENDING = _gauge("messages_pending", "Messages delivered and not finished.")
SUBS_READ = _counter("sub_messages_read", "Sub-messages delivered, over all runs of this drain.")
SUBS = _counter(
    "sub_messages", "Sub-messages finished, over all runs: done, dead, failed, skipped.", "outcome"
)
SUBS_PENDING = _gauge("sub_messages_pending", "Sub-messages delivered and not finished.")
RULED_OUT = _counter(
    "sub_messages_ruled_out",
    "Of these, what a rule took out, by the rule's name: skipped, or dead above --limit-per-key.",
    "rule",
    "outcome",
)
UNDECIDED = _counter(
    "sub_messages_undecided",
    "Sub-messages that a rule could not be told of, and did not take out, in this run.",
    "rule",
)
RATE = _gauge("sub_messages_per_second", "Sub-messages finished, over the last five seconds.")
ETA = _gauge("eta_seconds", "Until the end at the pace of now; missing while nothing moves.")

DEADLINE = _gauge("deadline_seconds", "Until --deadline; below zero when it has passed.")
DEADLINE_MARGIN = _gauge(
    "deadline_margin_seconds",
    "By how much --deadline will be met at the pace of now; below zero when it will be missed.",
)

IN_FLIGHT = _gauge("in_flight", "Sub-messages in the handler.")
CONCURRENCY = _gauge("concurrency", "How many may be in the handler at once.")
LANES = _gauge("lanes", "Sub-keys with something waiting or running.")
LANES_READY = _gauge("lanes_ready", "Lanes that only wait for a worker.")
LANES_PARKED = _gauge("lanes_parked", "Lanes that wait for another run, behind a failure.")
LANE_DEPTH_MOST = _gauge("lane_depth_max", "Sub-messages waiting in the hottest lane.")
LANE_DEPTH = _gauge(
    "lane_depth",
    "Sub-messages waiting in the hottest lanes, five at most, with ten or more in each. A lane that"
    " is none of them any more is gone; after 50 different ones in a run, others are called"
    " `another`.",
    "lane",
)
LATENCY = Metric(
    "drainer_handler_latency_seconds",
    Kind.SUMMARY,
    "How long handle takes when it returns: quantiles of the last ten seconds or so; count and sum"
    " of this run. A sample while there are more than 5,000 a second.",
)

FAILURES = _counter("failures", "Attempts that failed in this run, timeouts among them.")
ERRORS = _counter(
    "errors", "The same by the name of the error's class, 50 at most, then `other`.", "error"
)
TIMEOUTS = _counter("timeouts", "Attempts that took longer than --timeout, in this run.")
RETRIES = _counter("retries", "Further attempts that were granted, in this run.")
RETRIES_WAITING = _gauge("retries_waiting", "Sub-messages whose next attempt is not due yet.")
THREADS_LATE = _gauge("threads_late", "Sub-messages whose thread goes on after its time.")
BREAKER_OPEN = _gauge("breaker_open", "1 while the circuit breaker is open: an outage downstream.")
OUTAGES = _counter("outages", "How often the circuit breaker opened in this run.")

WAVE = _gauge("wave", "On Spark: the wave that is handled, from 1.")
WAVES = _gauge("waves", "On Spark: about how many waves there are; missing while nobody can tell.")
WAVE_AGE = _gauge("wave_age_seconds", "On Spark: since the wave began that is handled.")
TASKS = _gauge("tasks", "On Spark: tasks by what they do.", "state")
STRAGGLERS = _gauge("stragglers", "On Spark: tasks that the others wait for.")
TASK_QUIET_MOST = _gauge(
    "task_quiet_seconds_max", "On Spark: the longest that a task that has not ended said nothing."
)

BUFFERED = _gauge("buffered_bytes", "Memory of what is delivered and not finished, estimated.")
BUFFER = _gauge("buffer_limit_bytes", "What --buffer allows.")
PLAN_AGE = _gauge("plan_age_seconds", "Since the offset plan was last written.")

METRICS: tuple[Metric, ...] = tuple(
    found for found in list(globals().values()) if isinstance(found, Metric)
)
STATES = ("starting", "running", "stopping", "done", "empty", "interrupted", "halted", "failed")
