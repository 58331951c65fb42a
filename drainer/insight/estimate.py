"""Estimating a drain: its backlog is sampled, and the real lanes run on it on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drainer.core.codec import builtins
from drainer.core.order import Order
from drainer.engine.loop import hurried_interpreter
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import Forecast, Setting, forecast, least_concurrency
from drainer.insight.forecast.workload import Hottest, Workload
from drainer.insight.measurement import Measured, Say, Teller
from drainer.insight.retention import Expiry
from drainer.insight.splitting import Skipped
from drainer.kafka.backlog import Backlog
from drainer.mask import key_repr, masking
from drainer.policy.rate_cap import CapCurve

TABLE = (0.1, 0.3, 1, 3, 10)  # of the concurrency that is asked for
TABLE_MOST = 30_000  # sub-messages that are simulated for each of these, and for other orders
ORDERS = (Order.SUB_KEY, Order.KEY, Order.PARTITION)
TYPICAL_S = (0.001, 0.01, 0.1)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be estimated, beside the backlog.

    ``latency_source`` is where the latency is known from, in words.
    """

    latency: Distribution
    latency_source: str
    measured: bool  # in a drain, so that what the event loop adds is in it
    order: Order
    concurrency: int
    buffer_bytes: int
    rate: float | None = None
    deadline: datetime | None = None
    limits: CapCurve | None = None  # what the brokers bear
    writes: bool = False  # whether the handler writes each sub-message to Kafka


@dataclass(frozen=True, slots=True)
class DeadlineVerdict:
    """Whether a deadline is met: by ``margin_s``, or missed by as much below zero.

    ``least_concurrency`` would do; None when none does.
    """

    deadline: datetime
    left_s: float
    margin_s: float
    least_concurrency: int | None

    @property
    def met(self) -> bool:
        return self.margin_s >= 0

    def as_json(self) -> dict[str, object]:
        return {
            "at": self.deadline.isoformat(timespec="seconds"),
            "met": self.met,
            "left_s": round(self.left_s, 1),
            "margin_s": round(self.margin_s, 1),
            "least_concurrency": self.least_concurrency,
        }


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a drain will take.

    Attributes:
        topic: its name.
        group: whose backlog it is.
        question: what was asked.
        workload: what the backlog is made of.
        setting: what it was simulated with: latency, and what the process itself costs.
        orders: by order, at the concurrency that was asked for.
        table: other concurrencies, rising, at the order that was asked for.
        verdict: on the deadline; None when there is none.
        notes: what it can't know here, a sentence each.
        skipped: what rules leave out, which is no part of the workload; None without rules.
        expiry: the head of the backlog that retention deletes first; None when that can't be told.
    """

    topic: str
    group: str
    question: Question
    workload: Workload
    setting: Setting
    orders: dict[Order, Forecast]
    table: tuple[Forecast, ...]
    verdict: DeadlineVerdict | None
    notes: tuple[str, ...] = ()
    skipped: Skipped | None = None
    expiry: Expiry | None = None

    @property
    def too_late(self) -> bool:
        """Whether retention may delete the head of the backlog before the drain ends."""
        return self.expiry is not None and self.expiry.in_s < self.asked.seconds

    @property
    def asked(self) -> Forecast:
        """The one for the order and the concurrency that were asked for."""
        return self.orders[self.question.order]

    def as_json(self) -> dict[str, object]:
        """What ``--json`` has as ``estimate``."""
        question, workload, costs = self.question, self.workload, self.setting.costs
        bundling = self.setting.bundling
        return {
            **{order.value: forecast_json(each) for order, each in self.orders.items()},
            "order": question.order.value,
            "concurrency": question.concurrency,
            "messages": workload.messages,
            "sub_messages": workload.sub_messages,
            "sampled_messages": workload.sampled_messages,
            "latency": {**question.latency.as_json(), "source": question.latency_source},
            "retention": None
            if self.expiry is None
            else {**builtins(self.expiry), "sooner_than_the_drain": self.too_late},
            "rules": None if self.skipped is None else self.skipped.as_json(),
            "bundling": None if bundling is None else bundling.as_json(),
            "costs": {
                "sub_message_s": costs.sub_message_s,
                "together_s": costs.together_s,
                "fold_s": costs.fold_s,
                "message_s": costs.message_s,
                "split_s": self.setting.split_s,
                "fetch_s": costs.fetch_s,
            },
            "rate": question.rate,
            "read_cap": self.setting.read_cap,
            "write_cap": self.setting.write_cap,
            "table": [
                {"concurrency": each.concurrency, **forecast_json(each)} for each in self.table
            ],
            "deadline": None if self.verdict is None else self.verdict.as_json(),
            "notes": list(self.notes),
        }


def estimate(
    backlog: Backlog,
    group: str,
    measured: Measured,
    question: Question,
    now: datetime,
    say: Say = lambda text: None,
) -> Estimate:
    """Simulates all that is asked; takes a few seconds."""
    tell = Teller(say)
    workload = measured.workload
    setting = _setting(measured, question)
    asked, order = question.concurrency, question.order
    found: dict[int, Forecast] = {}

    def at(concurrency: int) -> Forecast:
        if concurrency not in found:
            tell(f"simulating {order.value} order with {concurrency:,} at once")
            found[concurrency] = forecast(workload, setting, order, concurrency, TABLE_MOST)
        return found[concurrency]

    with hurried_interpreter():
        tell(f"simulating {order.value} order with {asked:,} at once")
        found[asked] = forecast(workload, setting, order, asked)
        orders = {
            each: found[asked]
            if each is order
            else forecast(workload, setting, each, asked, TABLE_MOST)
            for each in dict.fromkeys((*ORDERS, order))
        }
        table = sorted({max(1, round(asked * times)) for times in TABLE} | {asked})
        rows = tuple(at(concurrency) for concurrency in table)
        verdict = None
        if question.deadline is not None:
            left_s = (question.deadline - now).total_seconds()
            least = least_concurrency(at, left_s, found[asked])
            verdict = DeadlineVerdict(
                question.deadline, left_s, left_s - found[asked].seconds, least
            )
    return Estimate(
        topic=backlog.topic,
        group=group,
        question=question,
        workload=workload,
        setting=setting,
        orders=orders,
        table=rows,
        verdict=verdict,
        notes=(*backlog.remarks, *_notes(workload)),
        skipped=measured.skipped,
        expiry=measured.expiry,
    )


def drain_seconds(measured: Measured, question: Question) -> float:
    """How long a drain takes as it is asked for, and nothing else of an estimate."""
    setting = _setting(measured, question)
    with hurried_interpreter():
        found = forecast(measured.workload, setting, question.order, question.concurrency)
    return found.seconds


def what_binds(measured: Measured, question: Question) -> Forecast:
    """How long a drain takes as it is asked for and what binds, from a short simulation."""
    setting = _setting(measured, question)
    with hurried_interpreter():
        return forecast(
            measured.workload, setting, question.order, question.concurrency, TABLE_MOST
        )


def _setting(measured: Measured, question: Question) -> Setting:
    # A latency that was measured has in it how late the event loop is.
    late_s = 0.0 if question.measured else measured.late_s
    return Setting(
        latency=question.latency.later(late_s),
        costs=measured.costs,
        split_s=measured.split_s,
        rate=question.rate,
        buffer_bytes=question.buffer_bytes,
        bundling=measured.bundling,
        **_caps(measured, question.limits, writes=question.writes),
    )


def _caps(measured: Measured, limits: CapCurve | None, *, writes: bool) -> dict[str, float]:
    workload = measured.workload
    if limits is None or not workload.messages:
        return {}
    found = {"read_cap": limits.cap(max(1.0, measured.message_bytes)).messages_per_s}
    if writes:
        # About as large as its share of the message.
        part_bytes = measured.message_bytes / max(1.0, workload.fan_out)
        found["write_cap"] = limits.cap(max(1.0, part_bytes)).messages_per_s
    return found


def estimate_typical(
    measured: Measured,
    order: Order,
    concurrency: int,
    buffer_bytes: int,
    rate: float | None,
    limits: CapCurve | None = None,
    *,
    writes: bool = False,
) -> list[tuple[Distribution, Forecast]]:
    """How long it would take with some latencies that handlers often have."""
    found = []
    with hurried_interpreter():
        for latency_s in TYPICAL_S:
            latency = Distribution.constant(latency_s)
            setting = Setting(
                latency,
                measured.costs,
                measured.split_s,
                rate,
                buffer_bytes,
                measured.bundling,
                **_caps(measured, limits, writes=writes),
            )
            made = forecast(measured.workload, setting, order, concurrency, TABLE_MOST)
            found.append((latency, made))
    return found


def _notes(workload: Workload) -> list[str]:
    notes = ["retries, failures and a downstream that slows down under load are not in it"]
    if not workload.whole:
        notes.append(
            f"from {workload.sampled_messages:,} messages read evenly over the backlog, a sample"
        )
    return notes


def forecast_json(found: Forecast) -> dict[str, object]:
    """A forecast in an answer of ``--json``."""
    return {
        "seconds": round(found.seconds, 3),
        "bound": found.bound,
        "serial_seconds": round(found.serial_s, 3),
        "calls": round(found.calls),
        "folded": round(found.folded),
        "hottest": _hottest_json(found.hottest),
        "bounds": {name: round(seconds, 3) for name, seconds in found.bounds.items()},
    }


def _hottest_json(hottest: Hottest | None) -> dict[str, object] | None:
    if hottest is None:
        return None
    plain = isinstance(hottest.key, str) and not masking()
    return {
        "key": hottest.key if plain else key_repr(hottest.key),
        "sub_messages": round(hottest.sub_messages),
        "calls_least": round(hottest.calls),
    }
