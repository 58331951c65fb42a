"""Lower bounds for the time that a drain takes, one for each thing that can limit it.

No schedule that keeps the order of lanes is faster than the largest of these bounds. The engine's
own schedule comes so close to that bound that the bound is the estimate (list scheduling, Graham
1969). ``docs/explanation/estimates.md`` has the formulas, and says how exact they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drainer.core.batches import FOLD_MOST, Batching, BatchOf
from drainer.core.lanes import look_ahead
from drainer.insight.distribution import Distribution
from drainer.insight.workload import Hottest, Workload, least_calls
from drainer.model.order import Order

CONCURRENCY, LANE, RATE, FETCH = "concurrency", "hottest lane", "rate", "fetch"
READ_CAP, WRITE_CAP = "read cap", "write cap"
SPLIT, HANDLE, CPU, BARRIERS, NOTHING = "split", "handle", "cpu", "barriers", "nothing"

NOTICED = 1.25  # Barriers count as the limit only if they make a drain longer by a quarter.
# The number of calls is computed in at most this many rounds. They end earlier if two rounds differ
# by at most this share of all sub-messages.
ROUNDS_MOST, AGREES = 100, 1e-3


@dataclass(frozen=True, slots=True)
class Costs:
    """The time that the process itself takes, besides the time in which the handler waits.

    Attributes:
        sub_message_s: the event loop's time for a sub-message, from its delivery to its end.
        message_s: further time for each message: its split, and the interpreter's time that the
            fetch thread takes.
        fetch_s: time from one fetched message to the next.
        begin_s: time until the first message has arrived.
        together_s: the event loop's time for the second and each further sub-message of a call.
    """

    sub_message_s: float = 0.0
    message_s: float = 0.0
    fetch_s: float = 0.0
    begin_s: float = 0.0
    together_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time that a backlog takes in one order at one concurrency.

    Attributes:
        seconds: the largest bound plus the time until the first message has arrived.
        bound: the name of what limits the drain.
        bounds: the lower bounds by name, in seconds.
        serial_s: the time of the hottest lane, one call after the other.
        hottest: the hottest lane; None if the backlog has no lanes.
        calls: calls of the handler for all sub-messages.
        folded: sub-messages that ``coalesce`` folds into others, so that they need no calls.
    """

    order: Order
    concurrency: int
    seconds: float
    bound: str
    bounds: Mapping[str, float]
    serial_s: float
    hottest: Hottest | None
    calls: float = 0.0
    folded: float = 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of a forecast, besides order and concurrency.

    Attributes:
        split_s: the time of the handler's ``split`` for a message, which is part of
            ``costs.message_s``.
        handle_s: the processor time of a call, which is part of ``costs.sub_message_s`` and of the
            latency.
        rate: sub-messages per second that ``--rate`` allows.
        read_cap: messages per second that the brokers' limits allow to read.
        write_cap: sub-messages per second that they allow a handler to write.
    """

    latency: Distribution
    costs: Costs = field(default_factory=Costs)
    split_s: float = 0.0
    handle_s: float = 0.0
    rate: float | None = None
    batching: Batching | None = None
    read_cap: float | None = None
    write_cap: float | None = None


def forecast(workload: Workload, setting: Setting, order: Order, concurrency: int) -> Forecast:
    """Forecast the drain of a backlog by the largest of its bounds."""
    if not workload.messages:
        return Forecast(order, concurrency, 0.0, NOTHING, {}, 0.0, None)
    hottest = workload.hottest(order, setting.batching)
    serial_s = 0.0 if hottest is None else hottest.calls * setting.latency.mean_s
    calls, folded = float(workload.sub_messages), 0.0
    if setting.batching is not None:
        calls, folded = _calls(workload, setting.batching, order, concurrency)
    work = _bounds_of_work(workload, setting, concurrency, calls, folded)
    bounds = {**work, LANE: serial_s}
    bound = max(bounds, key=lambda name: bounds[name])
    # In partition order, sub-messages run one by one even without barriers.
    if workload.barriers and order is not Order.PARTITION:
        longest_s = bounds[bound]
        barriers_s = _with_barriers(
            workload, setting.latency, concurrency, max(work.values()), serial_s
        )
        bounds[BARRIERS] = barriers_s
        if barriers_s > NOTICED * longest_s:
            bound = BARRIERS
    if bound == CPU:
        most_of = max(SPLIT, HANDLE, key=lambda name: bounds[name])
        bound = most_of if bounds[most_of] > bounds[CPU] / 2 else CPU
    seconds = setting.costs.begin_s + max(bounds.values())
    return Forecast(order, concurrency, seconds, bound, bounds, serial_s, hottest, calls, folded)


def _bounds_of_work(
    workload: Workload, setting: Setting, concurrency: int, calls: float, folded: float
) -> dict[str, float]:
    """Return the bounds that depend on the amount of work, and not on its spread over lanes."""
    subs, messages, costs = workload.sub_messages, workload.messages, setting.costs
    in_calls_s = calls * costs.sub_message_s + (subs - calls) * costs.together_s
    found = {
        CONCURRENCY: calls * setting.latency.mean_s / concurrency,
        FETCH: (messages - 1) * costs.fetch_s,
        SPLIT: messages * setting.split_s,
        HANDLE: calls * setting.handle_s,
        CPU: messages * costs.message_s + in_calls_s,
    }
    for bound, number, per_s in (
        (RATE, subs - folded, setting.rate),
        (READ_CAP, messages, setting.read_cap),
        (WRITE_CAP, subs - folded, setting.write_cap),
    ):
        if per_s is not None:
            found[bound] = max(0.0, number - 1) / per_s
    return found


def _with_barriers(
    workload: Workload, latency: Distribution, concurrency: int, work_s: float, serial_s: float
) -> float:
    """Return the time of the partition that is delayed most by its barriers, in seconds.

    Before a barrier runs, all calls of its partition have to return, so workers become idle. If
    there are many sub-messages between two barriers, the workers wait for the last of the running
    calls. If there are few, they wait for the longest call since the last barrier. Then the barrier
    runs alone. Meanwhile the idle workers can take sub-messages of other partitions.
    """
    found, mean_s, overhang_s = 0.0, latency.mean_s, latency.overhang_s(concurrency)
    for subs, barriers in workload.partitions.values():
        if not barriers:
            continue
        share, between = subs / workload.sub_messages, max(1.0, subs / barriers)
        few_s = latency.longest_s(between) - between * mean_s / concurrency
        each_s = mean_s * (1 - 1 / concurrency) + max(overhang_s, few_s)
        found = max(found, share * work_s + barriers * each_s, share * serial_s + barriers * mean_s)
    return found


def _calls(
    workload: Workload, batching: Batching, order: Order, concurrency: int
) -> tuple[float, float]:
    """Return how many calls a backlog takes, and how many sub-messages are folded into others.

    A call takes the sub-messages that wait in a lane. In a busy lane, at least one arrives during
    each call. If there are enough workers for all busy lanes, the next call begins at once, and
    takes those that have arrived. In any other lane, sub-messages gather until it is the lane's
    turn among all lanes that the engine reads ahead. If the engine can read ahead over all lanes of
    the backlog, a call may take all of its lane.

    How fast sub-messages arrive depends on the number of calls. So the number is computed in
    rounds, each of which begins with the result of the last, until two rounds agree.
    """
    lanes, total = workload.lanes(order), workload.sub_messages
    workers = concurrency * batching.lanes
    window = look_ahead(workers)
    read_whole = sum(lanes.values()) <= window
    run = batching.most if batching.of is BatchOf.LANE else 1
    operations, folded = float(total), 0.0
    for _ in range(ROUNDS_MOST):
        before, operations, folded = operations, 0.0, 0.0
        busy = sum(number for (subs, _), number in lanes.items() if workers * subs >= before)
        for (subs, folds), number in lanes.items():
            # For each operation that the drain does, this many sub-messages arrive in the lane.
            comes = subs / before
            unpaused = busy <= workers and workers * comes >= 1
            takes = workers * comes if unpaused else 1 + window * comes
            takes = subs if read_whole else min(takes, subs)
            # The first sub-message of a lane can't be folded, because there is none before it.
            folding = subs * min(1.0, folds / max(1.0, subs - 1))
            into_others = min(folds, folding * (1 - 1 / min(takes, FOLD_MOST)))
            calls = subs - into_others
            if run > 1:  # A call also takes sub-messages of the lane that do not fold.
                calls = max(subs / takes, least_calls(subs, folds, run))
            operations += number * calls
            folded += number * into_others
        if before - operations <= AGREES * total:
            break
    return operations / batching.lanes, folded
