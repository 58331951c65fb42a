"""The time that a backlog takes, and its limit: simulated for a part, and extrapolated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random

from drainer.core.batches import Batching
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.simulate import BUFFER_BYTES, Costs, Simulated, Simulation
from drainer.insight.forecast.workload import Hottest, Workload, as_sampled
from drainer.model.order import Order

DRAWS = 10_007  # latencies that are drawn; no multiple of what sub-messages come in
SEED = 1
SIMULATED_MOST = 100_000  # sub-messages; what is behind goes on at the same pace
PER_WORKER = 10  # sub-messages at least, so that ramp and tail show apart from the pace
SIMULATED_PER_WORKER_MOST = 200_000
MAKES_WORSE = 1.25  # of the largest bound; so much more is the doing of barriers and several keys

CONCURRENCY, LANE, RATE, FETCH = "concurrency", "hottest lane", "rate", "fetch"
READ_CAP, WRITE_CAP = "read cap", "write cap"
SPLIT, HANDLE, CPU, ORDER, SPARK, NOTHING = "split", "handle", "cpu", "order", "spark", "nothing"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time that a backlog takes in one order at one concurrency."""

    order: Order
    concurrency: int
    seconds: float  # never less than the largest of the bounds
    # The limit: the name of that one, or ORDER for barriers and sub-messages with several sub-keys
    # that others wait for.
    bound: str
    bounds: Mapping[str, float]  # by what sets it, the least time that it allows for, in seconds
    serial_s: float  # what the hottest lane takes, one after the other
    hottest: Hottest | None  # that lane; None when there is none
    calls: float = 0.0  # of the handler, for all sub-messages
    folded: float = 0.0  # how many sub-messages are done by another one that they were folded into


@dataclass(frozen=True, slots=True)
class Setting:
    """Conditions of a forecast, beside order and concurrency."""

    latency: Distribution
    costs: Costs = field(default_factory=Costs)
    split_s: float = 0.0  # of a message, and in ``costs.message_s`` too
    # Processor time of a call, in ``costs.sub_message_s`` and the latency too.
    handle_s: float = 0.0
    rate: float | None = None
    buffer_bytes: int = BUFFER_BYTES
    batching: Batching | None = None  # of its coalesce only whether there is one
    read_cap: float | None = None  # messages/s that the brokers' limits allow for
    write_cap: float | None = None  # sub-messages/s, of a handler that writes each of them


def forecast(
    workload: Workload, setting: Setting, order: Order, concurrency: int, most: int = SIMULATED_MOST
) -> Forecast:
    """Simulates at most ``most`` sub-messages (more for many workers), and scales what is behind.

    What is behind takes as long as the second half of what is simulated: so ramp and tail, which
    both have, are counted once.
    """
    hottest = workload.hottest(order, setting.batching)
    mean_s = setting.latency.mean_s
    serial_s = 0.0 if hottest is None else hottest.calls * mean_s
    if not workload.messages:
        return Forecast(order, concurrency, 0.0, NOTHING, {}, 0.0, None)
    if setting.batching is not None and setting.batching.coalesce is not None:
        # What is drawn twice brings its sub-keys near to each other, and those would be folded.
        most = min(most, workload.sampled_sub_messages)
    most = max(most, min(PER_WORKER * concurrency, SIMULATED_PER_WORKER_MOST))
    if workload.sub_messages <= most:
        found = _simulated(workload, setting, order, concurrency, workload.messages)
        seconds, calls, folded = found.seconds, float(found.calls), float(found.folded)
    else:
        many = max(2, round(workload.messages * most / workload.sub_messages))
        half = _simulated(workload, setting, order, concurrency, many // 2)
        whole = _simulated(workload, setting, order, concurrency, many)
        times = (workload.messages - whole.messages) / max(1, whole.messages - half.messages)

        def drawn_on(until_half: float, until_whole: float) -> float:
            return until_whole + times * max(0.0, until_whole - until_half)

        seconds = drawn_on(half.seconds, whole.seconds)
        calls = drawn_on(half.calls, whole.calls)
        folded = drawn_on(half.folded, whole.folded)
    if setting.batching is None:
        calls, folded = float(workload.sub_messages), 0.0
    bounds = _bounds(workload, setting, concurrency, serial_s, calls, folded)
    bound = max(bounds, key=lambda name: bounds[name])
    if seconds > MAKES_WORSE * bounds[bound] and (workload.barriers or workload.several):
        bound = ORDER
    elif bound == CPU and (most_of := max(SPLIT, HANDLE, key=lambda name: bounds[name])):
        bound = most_of if bounds[most_of] > bounds[CPU] / 2 else CPU
    seconds = max(seconds, *bounds.values())
    return Forecast(order, concurrency, seconds, bound, bounds, serial_s, hottest, calls, folded)


def bounds_of(
    workload: Workload, setting: Setting, order: Order, concurrency: int
) -> Mapping[str, float]:
    """The least seconds that each bound allows for, by its name; without a simulation."""
    hottest = workload.hottest(order, setting.batching)
    serial_s = 0.0 if hottest is None else hottest.calls * setting.latency.mean_s
    calls = float(workload.sub_messages)
    return _bounds(workload, setting, concurrency, serial_s, calls, 0.0)


def _simulated(
    workload: Workload, setting: Setting, order: Order, concurrency: int, messages: int
) -> Simulated:
    # What a call computes is among the costs: nothing else is done meanwhile.
    draws = cycle(setting.latency.later(-setting.handle_s).draws(DRAWS, Random(SEED)))
    batching = setting.batching
    if batching is not None and batching.coalesce is not None:
        batching = replace(batching, coalesce=as_sampled)
    return Simulation(
        workload.draw(messages),
        order=order,
        concurrency=concurrency,
        latency_s=lambda _: next(draws),
        costs=setting.costs,
        buffer_bytes=setting.buffer_bytes,
        batching=batching,
    ).run()


def _bounds(
    workload: Workload,
    setting: Setting,
    concurrency: int,
    serial_s: float,
    calls: float,
    folded: float,
) -> dict[str, float]:
    subs, messages, costs = workload.sub_messages, workload.messages, setting.costs
    found = {
        CONCURRENCY: calls * setting.latency.mean_s / concurrency,
        LANE: serial_s,
        FETCH: (messages - 1) * costs.fetch_s,
        SPLIT: messages * setting.split_s,
        HANDLE: calls * setting.handle_s,
        CPU: costs.of(messages, subs, calls),
    }
    if setting.rate is not None:
        found[RATE] = max(0.0, subs - folded - 1) / setting.rate
    if setting.read_cap is not None:
        found[READ_CAP] = (messages - 1) / setting.read_cap
    if setting.write_cap is not None:
        found[WRITE_CAP] = max(0.0, subs - folded - 1) / setting.write_cap
    return found
