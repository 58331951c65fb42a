"""Priority classes in an estimate: the passes of a sample, when each is drained, and the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from drainer.core.first import KeyBloom
from drainer.insight.bounds import Forecast, Setting, forecast
from drainer.insight.workload import Workload
from drainer.message import Barrier, SubMessage
from drainer.model.order import Order, lanes_of
from drainer.operations.start import Request
from drainer.policy.rules import Selection
from drainer.text.escape import shorten
from drainer.view import figures
from drainer.view.page import Column, Table
from drainer.view.priority import WHERE_SHOWN


@dataclass(frozen=True, slots=True)
class ClassWorkload:
    """The pass of a priority class.

    Attributes:
        where: the expression of the class.
        search_s: seconds to search one message for sub-messages of the class.
        deferred: sub-messages of the class that wait for the rest, because others are ahead of
            them.
    """

    where: str
    workload: Workload
    search_s: float
    deferred: int


# The passes of a drain: those of its priority classes, and the one for the rest; None with --only.
Passes = tuple[tuple[ClassWorkload, ...], Workload | None]


class PassDivider:
    """Divides the sub-messages of a sample into the passes of a drain, in the order of the log.

    Attributes:
        passes: the number of passes, including the one for the rest.
        only: whether the drain leaves the rest.
    """

    def __init__(self, wheres: Sequence[str], order: Order, *, only: bool = False) -> None:
        self._wheres, self._lanes_of, self.only = wheres, lanes_of(order), only
        # By class: seconds that the search for it took, and how many of it wait for the rest.
        self._search_s, self._deferred = [0.0] * len(wheres), [0.0] * len(wheres)
        self._classes = [(Selection(where), KeyBloom(), set[int]()) for where in wheres]
        self.passes = len(wheres) + 1

    @classmethod
    def of(cls, request: Request) -> PassDivider | None:
        """Return what divides a backlog as the request says; None without priority classes."""
        wheres = [each.where for each in request.classes.each]
        return cls(wheres, request.order, only=request.classes.only) if wheres else None

    def divide(
        self, partition: int, subs: Sequence[SubMessage], stands_for: float = 1.0
    ) -> list[list[SubMessage]]:
        """Divide the sub-messages of a message into the passes of a drain.

        ``stands_for`` is the number of messages in the backlog that this sampled one represents.
        """
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
            self._deferred[number] += deferred * stands_for
            self._search_s[number] += time.perf_counter() - begun_s
            parts.append(first)
            subs = rest
        return [*parts, list(subs)]

    def divided(self, workloads: Sequence[Workload], messages: int) -> Passes:
        """Return the passes with the workloads of a sample, which were divided message by message.

        ``messages`` is how many were divided.
        """
        searched = (seconds / max(1, messages) for seconds in self._search_s)
        *of_classes, rest = workloads
        found = map(ClassWorkload, self._wheres, of_classes, searched, map(round, self._deferred))
        return tuple(found), None if self.only else rest


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """When a priority class is drained, and how many sub-messages it has.

    Attributes:
        seconds: seconds from the beginning of the drain.
        sub_messages: how many are drained in the pass of the class.
        deferred: how many wait for the rest, because others are ahead of them in their lanes.
    """

    where: str
    seconds: float
    sub_messages: int
    deferred: int


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """The forecast of a drain with priority classes.

    Attributes:
        seconds: seconds until everything is drained, or with ``only`` everything that is selected.
        later_s: how many seconds longer that takes than in one pass.
        only: whether the drain leaves the rest for a resume.
    """

    classes: tuple[ClassForecast, ...]
    seconds: float
    later_s: float
    only: bool = False

    @classmethod
    def of(cls, passes: Passes, setting: Setting, without: Forecast) -> FirstForecast:
        """Forecast the passes of a drain. ``without`` is its forecast without priority classes.

        The pass of a class reads the whole backlog and handles little of it, so its costs include
        the search.
        """
        order, concurrency = without.order, without.concurrency
        seconds, classes = 0.0, []
        of_classes, rest = passes
        for each in of_classes:
            costs = replace(setting.costs, message_s=setting.costs.message_s + each.search_s)
            of_pass = replace(setting, costs=costs)
            seconds += forecast(each.workload, of_pass, order, concurrency).seconds
            seconds += setting.latency.mean_s
            count = each.workload.sub_messages
            classes.append(ClassForecast(each.where, seconds, count, each.deferred))
        if rest is not None:
            seconds += forecast(rest, setting, order, concurrency).seconds
        return cls(tuple(classes), seconds, seconds - without.seconds, rest is None)

    def table(self, in_one_pass: Forecast, workload: Workload) -> Table:
        """Make a table of when each class will be drained, and when all with and without classes.

        ``in_one_pass`` is the forecast without classes, and ``workload`` that of the whole backlog.
        """
        about = "" if workload.whole else "~"
        count, duration = figures.count, figures.duration
        rows = []
        for each in self.classes:
            where, first = shorten(each.where, WHERE_SHOWN), f"{about}{count(each.sub_messages)}"
            if each.deferred:
                first += f" of {about}{count(each.sub_messages + each.deferred)} first"
            rows.append((f"  {where}", first, duration(each.seconds)))
            if each.deferred:
                waiting = f"{about}{count(each.deferred)}"
                after = "a resume" if self.only else duration(self.seconds)
                rows.append(("    waiting for the rest", waiting, after))
        if not self.only:
            total = f"{about}{count(workload.sub_messages)}"
            rows.append(("  all", total, duration(self.seconds)))
            rows.append(("  all, in one pass", total, duration(in_one_pass.seconds)))
        return Table((Column(""), "sub-messages", "drained after"), tuple(rows), shown=len(rows))
