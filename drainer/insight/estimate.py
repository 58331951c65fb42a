"""The estimate of a drain: the real lanes handle a sample of its backlog on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from drainer.engine.loop import hurried_interpreter
from drainer.engine.preview import PROCESS, SPARK, EngineName
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import SIMULATED_MOST, Forecast, Setting, bounds_of, forecast
from drainer.insight.forecast.on_spark import Cores, forecast_on_spark
from drainer.insight.forecast.workload import Workload
from drainer.insight.measurement import Measured, StepReporter
from drainer.insight.sample_split import ClassWorkload
from drainer.kafka.backlog import Backlog
from drainer.mask import key_repr, masking
from drainer.model.codec import builtins
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.settings import LocalSettings
from drainer.operations.start import Request

TABLE = (0.1, 0.2, 0.5, 1, 2, 5, 10)  # times the concurrency of the request
TABLE_MOST = 30_000  # sub-messages that are simulated for each of these, and for other orders
ORDERS = (Order.SUB_KEY, Order.KEY, Order.PARTITION)
UNKNOWN = (
    "how long `handle` computes is unknown and left out: add --canary N or --latency-from PLAN"
)
LATE_S = 0.0004  # how late a sleep of 10 ms ends on an idle event loop, on average: 0.3 to 0.45 ms


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """When a class is drained, in seconds from the beginning, and how many sub-messages it has.

    ``held`` more of them wait for the rest: others are ahead of them in their lanes.
    """

    where: str
    seconds: float
    sub_messages: int
    held: int


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """A drain with classes: when each is drained, and when all is. ``later_s`` is how much sooner
    all would be without them."""

    classes: tuple[ClassForecast, ...]
    seconds: float
    later_s: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a drain, beside the request for it."""

    latency: Distribution
    source: str  # of the latency, in words
    # Whether it was measured in a drain, so that what the event loop adds is in it.
    measured: bool = False
    running: LocalSettings = field(default_factory=LocalSettings)
    deadline: datetime | None = None
    engine: EngineName = EngineName.PROCESS  # where it would run; by AUTO where it is quicker
    cores: Cores | None = None  # of Spark; None where Spark is out of the question


@dataclass(frozen=True, slots=True)
class DeadlineVerdict:
    """Whether a deadline is met: by ``margin_s``, or missed by as much below zero.

    ``least_concurrency`` is the least in the table that would do; None when none of them does.
    """

    deadline: datetime
    left_s: float
    margin_s: float
    least_concurrency: int | None

    @property
    def met(self) -> bool:
        return self.margin_s >= 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of how long a drain will take."""

    request: Request
    question: Question
    measured: Measured
    setting: Setting  # of the simulation
    orders: dict[Order, Forecast]  # by order, at the concurrency of the request
    table: tuple[Forecast, ...]  # other concurrencies, rising, at the order of the request
    verdict: DeadlineVerdict | None  # on the deadline; None when there is none
    notes: tuple[str, ...] = ()  # limits of the estimate, a sentence each
    engine: str = PROCESS
    by_engine: Mapping[str, float] = field(default_factory=dict)  # seconds
    first: FirstForecast | None = None  # with classes

    @property
    def seconds(self) -> float:
        """Seconds until all is drained, as requested."""
        return self.requested.seconds if self.first is None else self.first.seconds

    @property
    def workload(self) -> Workload:
        return self.measured.workload

    @property
    def requested(self) -> Forecast:
        """The forecast for the order and the concurrency of the request."""
        return self.orders[self.request.order]

    def as_json(self) -> dict[str, object]:
        """The object ``estimate`` of ``-o json``."""
        workload, setting, expiry = self.workload, self.setting, self.measured.expiry
        skipped = self.measured.skipped
        return {
            **{order.value: forecast_json(each) for order, each in self.orders.items()},
            "engine": self.engine,
            "by_engine": dict(self.by_engine),
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
            "table": [forecast_json(each) for each in self.table],
            "deadline": None
            if self.verdict is None
            else {**builtins(self.verdict), "met": self.verdict.met},
            "notes": list(self.notes),
        }


def make_estimate(
    backlog: Backlog,
    measured: Measured,
    request: Request,
    question: Question,
    print_line: Callable[[str], None] = lambda text: None,
) -> Estimate:
    """Simulates the drain, and others to compare it with; takes a few seconds."""
    report = StepReporter(print_line)
    workload = measured.workload
    setting = _setting(measured, request, question)
    concurrency, order = most_at_once(request, question.running), request.order
    ways: dict[str, Callable[..., Forecast]] = {PROCESS: forecast}
    if question.cores is not None:
        ways[SPARK] = partial(
            forecast_on_spark, cores=question.cores, message_bytes=measured.message_bytes
        )

    def simulate(way: Callable[..., Forecast], order: Order, calls: int, most: int) -> Forecast:
        report(f"simulating {order.value} order with {calls:,} at once")
        return way(workload, setting, order, calls, most)

    with hurried_interpreter():
        by_engine = {
            name: simulate(way, order, concurrency, SIMULATED_MOST) for name, way in ways.items()
        }
        engine = question.engine.value
        if question.engine is EngineName.AUTO:
            engine = min(by_engine, key=lambda name: by_engine[name].seconds)
        way, orders = ways[engine], {order: by_engine[engine]}
        for each in set(ORDERS) - {order}:
            orders[each] = simulate(way, each, concurrency, TABLE_MOST)
        others = {max(1, round(concurrency * times)) for times in TABLE} - {concurrency}
        rows = [orders[order], *(simulate(way, order, calls, TABLE_MOST) for calls in others)]
    rows.sort(key=lambda each: each.concurrency)
    verdict, first, later_s = None, None, 0.0
    if measured.rest is not None:
        rest_s = way(measured.rest, setting, order, concurrency, SIMULATED_MOST).seconds
        first = forecast_first(measured.classes, setting, orders[order], rest_s)
        later_s = first.later_s
    if question.deadline is not None:
        left_s = (question.deadline - datetime.now(UTC)).total_seconds()
        enough = (each.concurrency for each in rows if each.seconds + later_s <= left_s)
        margin_s = left_s - orders[order].seconds - later_s
        verdict = DeadlineVerdict(question.deadline, left_s, margin_s, next(enough, None))
    return Estimate(
        request,
        question,
        measured,
        setting,
        {each: orders[each] for each in dict.fromkeys((*ORDERS, order))},
        tuple(rows),
        verdict,
        (*backlog.remarks, *backlog.checks, *_notes(workload, request, question)),
        engine,
        {name: found.seconds for name, found in by_engine.items()},
        first,
    )


def forecast_first(
    found: Sequence[ClassWorkload], setting: Setting, without: Forecast, rest_s: float
) -> FirstForecast:
    """A pass takes what binds it most, for it reads all and handles little; ``rest_s`` is what the
    rest takes."""
    seconds, classes = 0.0, []
    for each in found:
        costs = replace(setting.costs, message_s=setting.costs.message_s + each.search_s)
        of_pass = replace(setting, costs=costs)
        bounds = bounds_of(each.workload, of_pass, without.order, without.concurrency)
        seconds += costs.begin_s + max(bounds.values()) + setting.latency.mean_s
        count = each.workload.sub_messages
        classes.append(ClassForecast(each.where, seconds, count, each.deferred))
    all_s = seconds + rest_s
    return FirstForecast(tuple(classes), all_s, all_s - without.seconds)


def most_at_once(request: Request, running: LocalSettings) -> int:
    """The concurrency; of a drain that finds its own, the most."""
    return Concurrency.of(running.concurrency).most_for(threads=not request.handler.is_async)


def _setting(measured: Measured, request: Request, question: Question) -> Setting:
    # A latency that was measured has in it how late the event loop is.
    late_s = LATE_S if request.handler.is_async and not question.measured else 0.0
    read_cap = write_cap = None
    if request.limits is not None and measured.workload.messages:
        message_bytes = max(1.0, measured.message_bytes)
        read_cap = request.limits.reading.cap(message_bytes).messages_per_s
        if request.handler.writes_records:
            # About as large as its share of the message.
            part_bytes = max(1.0, message_bytes / max(1.0, measured.workload.fan_out))
            write_cap = request.limits.cap(part_bytes).messages_per_s
    handle_s = question.latency.processor_s or 0.0
    return Setting(
        latency=question.latency.later(late_s),
        costs=replace(measured.costs, sub_message_s=measured.costs.sub_message_s + handle_s),
        split_s=measured.split_s,
        handle_s=handle_s,
        rate=request.failures.rate,
        buffer_bytes=question.running.buffer_bytes,
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
    if not workload.whole:
        notes.append(
            f"from {workload.sampled_messages:,} messages read evenly over the backlog, a sample"
        )
    return notes


def forecast_json(found: Forecast) -> dict[str, object]:
    """A forecast in an answer of ``-o json``."""
    hottest, key = found.hottest, None
    if hottest is not None:
        plain = isinstance(hottest.key, str) and not masking()
        key = hottest.key if plain else key_repr(hottest.key)
    return {
        **builtins(replace(found, hottest=None)),
        "hottest": None if hottest is None else builtins(replace(hottest, key=key)),
    }
