"""The time that a drain with classes takes: a sample is divided into its passes, each is timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from drainer.core.first import KeyBloom
from drainer.insight.forecast.forecast import Forecast, Setting, bounds_of
from drainer.insight.forecast.workload import Workload
from drainer.message import Barrier, SubMessage
from drainer.model.order import Order, lanes_of
from drainer.policy.rules import Selection


@dataclass(frozen=True, slots=True)
class ClassWorkload:
    """The pass of a class: its work, seconds to search a message for it, sub-messages that wait."""

    where: str
    workload: Workload
    search_s: float
    deferred: int


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


class PassDivider:
    """Divides the sub-messages of a sample into the passes of a drain, in the order of the log.

    By class, ``search_s`` is how long the search for it took, and ``deferred`` how many
    sub-messages of it wait for the rest.
    """

    def __init__(self, wheres: Sequence[str], order: Order) -> None:
        self._lanes_of = lanes_of(order)
        self._classes = [(Selection(where), KeyBloom(), set[int]()) for where in wheres]
        self.passes = len(wheres) + 1
        self.search_s = [0.0] * len(wheres)
        self.deferred = [0.0] * len(wheres)

    def divide(
        self, partition: int, subs: Sequence[SubMessage], stands_for: float = 1.0
    ) -> list[list[SubMessage]]:
        """Sub-messages of each pass, of one message, which stands for so many."""
        parts = []
        for number, (selection, waits, cut) in enumerate(self._classes):
            begun_s = time.perf_counter()
            bits = selection.bits(subs)
            first, rest, deferred = [], [], 0
            for at, sub in enumerate(subs):
                if partition in cut or isinstance(sub, Barrier):
                    cut.add(partition)
                    rest.append(sub)
                    deferred += bits >> at & 1
                elif bits >> at & 1 and not waits.has_any(partition, self._lanes_of(sub)):
                    first.append(sub)
                else:
                    rest.append(sub)
                    waits.add(partition, self._lanes_of(sub))
                    deferred += bits >> at & 1
            self.deferred[number] += deferred * stands_for
            self.search_s[number] += time.perf_counter() - begun_s
            parts.append(first)
            subs = rest
        return [*parts, list(subs)]


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
