"""The estimate of a drain, from a sample of the backlog and its measured cost on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from drainer.insight.bounds import BARRIERS, CPU, Forecast, Setting, forecast
from drainer.insight.distribution import Distribution
from drainer.insight.first import FirstForecast
from drainer.insight.measurement import Measured, measure_backlog
from drainer.insight.workload import Workload
from drainer.kafka.backlog import Backlog
from drainer.kafka.cluster import Cluster
from drainer.model.codec import builtins
from drainer.model.deadline import DeadlineStatus
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.settings import LocalSettings
from drainer.model.shown import Shown
from drainer.operations.start import Request
from drainer.text.mask import key_repr, masking

# The table of an estimate has a row for each of these multiples of the requested concurrency.
TABLE = (0.1, 0.2, 0.5, 1, 2, 5, 10)
ORDERS = (Order.SUB_KEY, Order.KEY, Order.PARTITION)
UNKNOWN = "the processor time of `handle` is unknown and left out: --latency PLAN has it"
SEVERAL = "sub-messages with several sub-keys wait for each other: allow a tenth more time"
# A sleep of 10 ms ends this much too late on an idle event loop, on average. Measurements gave 0.3
# to 0.45 ms.
LATE_S = 0.0004

# The shortest and the longest times of drains, divided by their estimates. They depend on what
# takes most of the time: waiting for the handler, barriers, or the process itself. `python -m
# scenarios.estimate` measured them on 2026-11-29, on two cores that had little else to do.
# docs/explanation/estimates.md says how many drains were measured.
WAITING, WITH_BARRIERS, PROCESSING = (0.98, 1.19), (1.0, 1.15), (0.93, 1.87)
# If the process is busy for more than this share of the time, the range of PROCESSING applies.
PROCESSES = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """What an estimate needs besides the request for the drain.

    Attributes:
        source: where the latency comes from, as a text for people.
        measured: whether a drain measured the latency, which then includes the event loop's delay.
    """

    latency: Distribution
    source: str
    measured: bool = False
    running: LocalSettings = field(default_factory=LocalSettings)


@dataclass(frozen=True, slots=True)
class DeadlineVerdict(DeadlineStatus):
    """Whether a drain will meet its deadline.

    ``least_concurrency`` is the lowest concurrency of the table that meets it; None if none does.
    """

    least_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate(Shown):
    """The estimate of how long a drain will take.

    Attributes:
        orders: the forecast for each ordering guarantee, at the requested concurrency.
        table: the forecasts for rising concurrencies, with the requested ordering guarantee.
        verdict: whether the deadline is met; None without a deadline.
        notes: what the estimate leaves out, one sentence each.
        first: the passes of a drain with priority classes; None without priority classes.
    """

    _page = "drainer.insight.cli.estimate:estimate_page"
    request: Request
    question: Question
    measured: Measured
    setting: Setting
    orders: dict[Order, Forecast]
    table: tuple[Forecast, ...]
    verdict: DeadlineVerdict | None
    notes: tuple[str, ...] = ()
    first: FirstForecast | None = None

    @property
    def seconds(self) -> float:
        """Seconds until everything is drained, with the requested order and concurrency."""
        return self.requested.seconds if self.first is None else self.first.seconds

    @property
    def range_s(self) -> tuple[float, float]:
        """The range, in seconds, in which measured drains with such an estimate ended."""
        found = WAITING
        if self.requested.bounds.get(CPU, 0.0) > PROCESSES * self.requested.seconds:
            found = PROCESSING
        elif self.requested.bound == BARRIERS:
            found = WITH_BARRIERS
        return self.seconds * found[0], self.seconds * found[1]

    @property
    def workload(self) -> Workload:
        return self.measured.workload

    @property
    def requested(self) -> Forecast:
        """The forecast for the requested order and concurrency."""
        return self.orders[self.request.order]

    def as_json(self) -> dict[str, object]:
        """Return the object ``estimate`` of ``-o json``."""
        workload, setting, expiry = self.workload, self.setting, self.measured.expiry
        skipped = self.measured.skipped
        return {
            **{order.value: _forecast_json(each) for order, each in self.orders.items()},
            "range_s": list(self.range_s),
            "order": self.request.order.value,
            "concurrency": self.requested.concurrency,
            "messages": workload.messages,
            "sub_messages": workload.sub_messages,
            "sampled_messages": workload.sampled_messages,
            "latency": {**setting.latency.as_json(), "source": self.question.source},
            "retention": None
            if expiry is None
            else {**builtins(expiry), "sooner_than_the_drain": expiry.in_s < self.seconds},
            "rules": None if skipped is None else {**builtins(skipped), "skipped": skipped.total},
            "rejected_messages": self.measured.rejected[0],
            "first": None if self.first is None else builtins(self.first),
            "bundling": None if setting.batching is None else setting.batching.as_json(),
            "costs": {
                **builtins(setting.costs),
                "split_s": setting.split_s,
                "handle_s": setting.handle_s,
            },
            "rate": setting.rate,
            "read_cap": setting.read_cap,
            "write_cap": setting.write_cap,
            "table": [_forecast_json(each) for each in self.table],
            "deadline": None if self.verdict is None else builtins(self.verdict),
            "notes": list(self.notes),
            "warnings": list(self.measured.warnings),
        }


def make_estimate(
    cluster: Cluster,
    backlog: Backlog,
    request: Request,
    question: Question,
    print_line: Callable[[str], None],
) -> Estimate:
    """Measure a backlog, and estimate its drain in several orders and at several concurrencies.

    Raises what ``measure_backlog`` raises.
    """
    most, order = Concurrency.of(question.running.concurrency), request.order
    concurrency = most.most_for(threads=not request.handler.is_async)
    measured = measure_backlog(cluster, backlog, request, concurrency, print_line)
    workload, setting = measured.workload, _setting(measured, request, question)
    orders = {
        each: forecast(workload, setting, each, concurrency)
        for each in dict.fromkeys((*ORDERS, order))
    }
    rows = tuple(
        orders[order] if calls == concurrency else forecast(workload, setting, order, calls)
        for calls in sorted({max(1, round(concurrency * times)) for times in TABLE})
    )
    verdict, first, later_s = None, None, 0.0
    if measured.passes is not None:
        first = FirstForecast.of(measured.passes, setting, orders[order])
        later_s = first.later_s
    if (deadline := question.running.deadline) is not None:
        left_s = (deadline - datetime.now(UTC)).total_seconds()
        enough = (each.concurrency for each in rows if each.seconds + later_s <= left_s)
        margin_s = left_s - orders[order].seconds - later_s
        verdict = DeadlineVerdict(deadline, left_s, margin_s, margin_s < 0, next(enough, None))
    notes = (*backlog.remarks, *backlog.checks, *_notes(workload, request, question))
    return Estimate(request, question, measured, setting, orders, rows, verdict, notes, first)


def _setting(measured: Measured, request: Request, question: Question) -> Setting:
    # A measured latency includes the event loop's delay.
    late_s = LATE_S if request.handler.is_async and not question.measured else 0.0
    read_cap = write_cap = None
    if request.limits is not None and measured.workload.messages:
        message_bytes = max(1.0, measured.message_bytes)
        read_cap = request.limits.reading.cap(message_bytes).messages_per_s
        if request.handler.writes_records:
            # The estimate assumes that the handler writes a record for each sub-message, and that
            # the records of a message are together as large as the message.
            part_bytes = max(1.0, message_bytes / max(1.0, measured.workload.fan_out))
            write_cap = request.limits.cap(part_bytes).messages_per_s
    handle_s = question.latency.processor_s or 0.0
    return Setting(
        latency=question.latency.later(late_s),
        costs=replace(measured.costs, sub_message_s=measured.costs.sub_message_s + handle_s),
        split_s=measured.split_s,
        handle_s=handle_s,
        rate=request.failures.rate,
        batching=request.handler.batching,
        read_cap=read_cap,
        write_cap=write_cap,
    )


def _notes(workload: Workload, request: Request, question: Question) -> list[str]:
    notes = [
        "the estimate leaves out retries, failures, and a downstream that slows down under load"
    ]
    if question.latency.processor_s is None:
        notes.append(UNKNOWN)
    if workload.several:
        notes.append(SEVERAL)
    if not workload.whole:
        notes.append(
            f"from a sample: {workload.sampled_messages:,} messages, spread evenly over the backlog"
        )
    return notes


def _forecast_json(found: Forecast) -> dict[str, object]:
    """Return a forecast for ``-o json``."""
    hottest, key = found.hottest, None
    if hottest is not None:
        plain = isinstance(hottest.key, str) and not masking()
        key = hottest.key if plain else key_repr(hottest.key)
    return {
        **builtins(replace(found, hottest=None)),
        "hottest": None if hottest is None else builtins(replace(hottest, key=key)),
    }
