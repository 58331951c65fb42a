"""How long a backlog will take, and what binds: simulated as far as is worth it, and drawn on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil
from random import Random

from drainer.core.distribution import Distribution
from drainer.core.order import Order
from drainer.core.simulate import BUFFER_BYTES, Costs, Simulated, simulate
from drainer.core.workload import Hottest, Workload

DRAWS = 10_007  # latencies that are drawn; no multiple of what sub-messages come in
SEED = 1
SIMULATED_MOST = 150_000  # sub-messages; what is behind goes on at the same pace
PER_WORKER = 10  # sub-messages at least, so that ramp and tail are told from the pace
SIMULATED_PER_WORKER_MOST = 200_000
CLOSE = 0.02  # how near the least concurrency is looked for
TRIES = 8
MAKES_WORSE = 1.25  # of the largest bound; so much more is the doing of barriers and several keys

CONCURRENCY, LANE, RATE, FETCH = "concurrency", "hottest lane", "rate", "fetch"
SPLIT, CPU, ORDER, NOTHING = "split", "cpu", "order", "nothing"


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long a backlog takes in one order at one concurrency.

    Attributes:
        seconds: never less than the largest of the bounds.
        bound: what binds: the name of that one, or ORDER for barriers and sub-messages with several
            sub-keys that hold others back.
        bounds: by what sets it, the least time that it allows for, in seconds.
        serial_s: what the hottest lane takes, one after the other.
        hottest: that lane; None when there is none.
    """

    order: Order
    concurrency: int
    seconds: float
    bound: str
    bounds: Mapping[str, float]
    serial_s: float
    hottest: Hottest | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What a forecast is made for, beside order and concurrency."""

    latency: Distribution
    costs: Costs = field(default_factory=Costs)
    split_s: float = 0.0  # of a message, and in ``costs.message_s`` too
    rate: float | None = None
    buffer_bytes: int = BUFFER_BYTES


def forecast(
    workload: Workload,
    setting: Setting,
    order: Order,
    concurrency: int,
    most: int = SIMULATED_MOST,
) -> Forecast:
    """Simulates at most ``most`` sub-messages (more for many workers), and scales what is behind.

    What is behind takes as long as the second half of what is simulated: so ramp and tail, which
    both have, are counted once.
    """
    hottest = workload.hottest(order)
    mean_s = setting.latency.mean_s
    serial_s = 0.0 if hottest is None else hottest.sub_messages * mean_s
    if not workload.messages:
        return Forecast(order, concurrency, 0.0, NOTHING, {}, 0.0, None)
    most = max(most, min(PER_WORKER * concurrency, SIMULATED_PER_WORKER_MOST))
    bounds = _bounds(workload, setting, concurrency, serial_s)
    if workload.sub_messages <= most:
        seconds = _simulated(workload, setting, order, concurrency, workload.messages).seconds
    else:
        many = max(2, round(workload.messages * most / workload.sub_messages))
        half = _simulated(workload, setting, order, concurrency, many // 2)
        whole = _simulated(workload, setting, order, concurrency, many)
        pace_s = (whole.seconds - half.seconds) / max(1, whole.messages - half.messages)
        seconds = whole.seconds + (workload.messages - whole.messages) * max(0.0, pace_s)
    bound = max(bounds, key=lambda name: bounds[name])
    if seconds > MAKES_WORSE * bounds[bound] and (workload.barriers or workload.several):
        bound = ORDER
    elif bound == CPU and bounds[SPLIT] > bounds[CPU] / 2:
        bound = SPLIT
    return Forecast(
        order, concurrency, max(seconds, *bounds.values()), bound, bounds, serial_s, hottest
    )


def least_concurrency(
    forecast_at: Callable[[int], Forecast], enough_s: float, known: Forecast
) -> int | None:
    """The least concurrency (nearly) that takes ``enough_s`` at most; None when none does.

    ``known`` is a forecast to begin from.
    """
    others = [seconds for name, seconds in known.bounds.items() if name != CONCURRENCY]
    if enough_s <= 0 or max(others, default=0.0) > enough_s:
        return None
    work_s = known.bounds.get(CONCURRENCY, 0.0) * known.concurrency
    low = max(1, ceil(work_s / enough_s))  # with fewer it can't be
    tried = low
    for _ in range(TRIES):
        found_s = forecast_at(tried).seconds
        if found_s <= enough_s:
            break
        low, tried = tried + 1, ceil(tried * max(1 + CLOSE, found_s / enough_s))
    else:
        return None
    while tried - low > CLOSE * tried:
        middle = (low + tried) // 2
        if forecast_at(middle).seconds <= enough_s:
            tried = middle
        else:
            low = middle + 1
    return tried


def _simulated(
    workload: Workload, setting: Setting, order: Order, concurrency: int, messages: int
) -> Simulated:
    draws = cycle(setting.latency.draws(DRAWS, Random(SEED)))
    return simulate(
        workload.draw(messages),
        order=order,
        concurrency=concurrency,
        latency_s=lambda _: next(draws),
        costs=setting.costs,
        rate=setting.rate,
        buffer_bytes=setting.buffer_bytes,
    )


def _bounds(
    workload: Workload, setting: Setting, concurrency: int, serial_s: float
) -> dict[str, float]:
    subs, messages, costs = workload.sub_messages, workload.messages, setting.costs
    found = {
        CONCURRENCY: subs * setting.latency.mean_s / concurrency,
        LANE: serial_s,
        FETCH: (messages - 1) * costs.fetch_s,
        SPLIT: messages * setting.split_s,
        CPU: messages * costs.message_s + subs * costs.sub_message_s,
    }
    if setting.rate is not None:
        found[RATE] = max(0, subs - 1) / setting.rate
    return found
