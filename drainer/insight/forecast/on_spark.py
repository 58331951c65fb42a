"""The time that a backlog takes on Spark, by the cost of each step.

Tasks read, split and pack sub-messages into chunks, and tasks unpack and handle them. The lanes are
those of one process, and so is what they wait for: calls, at most so many at once. What differs is
that several cores share the processor's part, and what Spark takes for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from drainer.insight.forecast.forecast import SPARK, Forecast, Setting, forecast
from drainer.insight.forecast.simulate import Costs
from drainer.insight.forecast.workload import Workload
from drainer.model.order import Order

# Measured as in docs/explanation/estimates.md, "On Spark".
PACK_S = 2.8e-6  # of a sub-message, on its way into a chunk
UNPACK_S = 2.2e-6  # and out of it again
START_S = 9.4  # until there is a session
FIRST_WAVE_S = 1.2  # beside its work
WAVE_S = 0.32  # of each further one


@dataclass(frozen=True, slots=True)
class Cores:
    """Resources of Spark for a drain."""

    number: int  # cores, each with a task
    wave_bytes: int  # how much of the backlog is read, shuffled and handled at once
    session: bool = False  # whether it is there already


def forecast_on_spark(
    workload: Workload,
    setting: Setting,
    order: Order,
    concurrency: int,
    most: int,
    *,
    cores: Cores,
    message_bytes: float,
) -> Forecast:
    """Forecasts as ``forecast`` does, for tasks that run on so many cores."""
    shared = replace(
        setting,
        costs=_shared(setting.costs, cores.number),
        split_s=setting.split_s / cores.number,
        handle_s=setting.handle_s / cores.number,
    )
    found = forecast(workload, shared, order, concurrency, most)
    if not workload.messages:
        return found
    waves = max(1, ceil(workload.messages * message_bytes / cores.wave_bytes))
    own_s = FIRST_WAVE_S + (waves - 1) * WAVE_S + (0.0 if cores.session else START_S)
    bounds = {**found.bounds, SPARK: own_s}
    bound = SPARK if own_s > found.seconds else found.bound
    return replace(found, seconds=own_s + found.seconds, bounds=bounds, bound=bound)


def _shared(costs: Costs, cores: int) -> Costs:
    return Costs(
        sub_message_s=(costs.sub_message_s + PACK_S + UNPACK_S) / cores,
        together_s=(costs.together_s + PACK_S + UNPACK_S) / cores,
        message_s=costs.message_s / cores,
        fetch_s=costs.fetch_s / cores,  # several read one partition
        begin_s=costs.begin_s,
    )
