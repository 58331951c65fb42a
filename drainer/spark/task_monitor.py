"""What the driver knows of its tasks: their last words, added up to the status of one drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from drainer.core.claims import ALL
from drainer.core.latency import Latency, merge_latencies
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.meter import HOTTEST, Measures
from drainer.engine.status import FailureStatus, PartitionStatus, RuleStatus, Status
from drainer.spark.aggregation import Aggregation
from drainer.spark.state import Attempt
from drainer.spark.status import ENDED, SparkStatus, TaskStatus

QUIET_S = 5.0  # a task that said nothing for so long is reported
BEHIND = 0.5  # of what the others have done on average: one that has less is a straggler


Task = tuple[int, int]  # deal, and its number there


class Shown(str):
    """Text that stands for a sub-key of another process, and is shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


class TaskMonitor(Measures):
    """Owned by the driver's event loop; ``take`` is given each record's status."""

    def __init__(
        self,
        aggregation: Aggregation,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._aggregation = aggregation
        super().__init__(
            aggregation.counts()[1].finished,
            concurrency=concurrency,
            buffer_bytes=buffer_bytes,
            plan_path=plan_path,
            clock=clock,
        )
        self._last: dict[Task, tuple[Attempt, float, Mapping[str, Any]]] = {}
        self._ended: set[Task] = set()
        self._begun: dict[Task, int] = {}  # attempts
        self._before = _Sum()  # of deals and attempts that are over
        self._total: _Sum | None = None  # of all, until there is news
        self.positions: dict[int, int] = aggregation.watermarks
        self.waves = 0
        self._about: int | None = None
        self._wave_began_s = self._dealt_s = clock()
        self.tasks_most = 0

    def counts(self) -> tuple[Counts, Counts]:
        return self._aggregation.counts()

    def begin_wave(self, about: int) -> None:
        """The next wave is to be handled, of about so many."""
        self.waves += 1
        self._about = about
        self._wave_began_s = self._clock()

    def begin(self, deal: int, tasks: int) -> None:
        """A deal has begun, of so many tasks."""
        self._dealt_s = self._clock()
        self._begun |= dict.fromkeys(((deal, task) for task in range(tasks)), 0)
        self.tasks_most = max(self.tasks_most, len(self._begun))

    def take(self, attempt: Attempt, status: Mapping[str, Any] | None) -> None:
        """A record of a task, with its status when it reported one."""
        task = attempt.deal, attempt.task
        if task not in self._begun:
            return
        known = self._last.get(task)
        if known is None or known[0] != attempt:
            if known is not None:
                if known[0].number > attempt.number:
                    return
                self._before.add(known[2])
            self._begun[task] += 1
            status = status or {}
        if status is not None:
            self._last[task] = (attempt, self._clock(), status)
            self._total = None

    def ended(self, deal: int, task: int, status: Mapping[str, Any]) -> None:
        """A task has ended, with these last words."""
        self._ended.add((deal, task))
        self._total = None
        if (deal, task) in self._last:
            attempt, at_s, _ = self._last[deal, task]
            self._last[deal, task] = (attempt, at_s, status)
        else:
            self._before.add(status)

    def end(self, deal: int) -> None:
        """A deal is over; what its tasks said is added up."""
        for task in [each for each in self._begun if each[0] == deal]:
            if task in self._last:
                self._before.add(self._last.pop(task)[2])
            del self._begun[task]
            self._ended.discard(task)
        self._total = None

    def overall(self) -> Latency | None:
        """The handler's latency, in this run: the checkpointer asks."""
        return self._sum().latency

    def failures(self, dead_letter_topic: str | None) -> FailureStatus:
        return self._sum().failures(dead_letter_topic)

    @property
    def given_up(self) -> int:
        return self._sum().numbers["given_up"]

    def rules(self) -> RuleStatus:
        ruled, found = self._aggregation.ruled(), self._sum()
        return RuleStatus(
            ruled.skipped_by,
            dict(found.undecided),
            dict(found.why),
            ruled.skipped_for,
        )

    @property
    def trouble(self) -> str | None:
        """What a task waits out, by its last words, or all of them do."""
        waited_s = self._clock() - self._dealt_s
        if self._begun and not any(self._begun.values()) and waited_s > QUIET_S:
            return f"Spark has no slot for any of the wave's {len(self._begun)} tasks"
        return next((each["trouble"] for each in self._told if each["trouble"]), None)

    def status(self, plan: OffsetPlan, *, ahead: bool) -> Status:
        """``ahead`` says whether the next wave is being read."""
        watermarks, reported = self._aggregation.watermarks, self._told
        hottest = sorted(
            ((Shown(text), waiting) for each in reported for text, waiting in each["hottest"]),
            key=lambda each: -each[1],
        )
        now = self._clock()
        began_s = self._wave_began_s
        return self._status(
            plan,
            (
                PartitionStatus(
                    partition=number,
                    start=part.start,
                    end=part.end,
                    position=self.positions[number],
                    watermark=watermarks[number],
                    committed=part.committed,
                    messages_finished=plan.claims[ALL][number].messages.finished,
                )
                for number, part in plan.partitions.items()
            ),
            running=sum(each["running"] for each in reported),
            lanes=sum(each["lanes"] for each in reported),
            lanes_ready=sum(each["ready"] for each in reported),
            hottest=hottest[:HOTTEST],
            buffered_bytes=sum(each["buffered_bytes"] for each in reported),
            latency_recent=merge_latencies(_latency(each.get("recent")) for each in reported),
            engine=SparkStatus(self.waves, self._about, ahead, now - began_s, self._tasks(now)),
        )

    @property
    def _told(self) -> list[Mapping[str, Any]]:
        return [status for _, _, status in self._last.values() if status]

    def _tasks(self, now: float) -> tuple[TaskStatus, ...]:
        done = {task: self._aggregation.finished_in(*task).finished for task in self._begun}
        shares = {
            task: done[task] / max(1, self._aggregation.expected(*task)) for task in self._begun
        }
        average = sum(shares.values()) / max(1, len(shares))
        found = []
        last_s = max((at_s for _, at_s, _ in self._last.values()), default=now)
        for task in self._begun:
            attempt, at_s, status = self._last.get(task, (None, now, {}))
            over = task in self._ended
            waiting = "waiting" if attempt is None else "reading"
            state = ENDED if over else "handling" if status else waiting
            found.append(
                TaskStatus(
                    task=f"{task[0]}.{task[1]}",
                    attempt=max(1, self._begun[task]),
                    host=status.get("host", ""),
                    state=state,
                    running=0 if over else status.get("running", 0),
                    lanes=0 if over else status.get("lanes", 0),
                    ready=0 if over else status.get("ready", 0),
                    finished=done[task],
                    rate=0.0 if over else status.get("rate", 0.0),
                    quiet_s=0.0 if over else now - at_s,
                    straggler=not over
                    and attempt is not None
                    and (last_s - at_s > QUIET_S or shares[task] < BEHIND * average),
                )
            )
        return tuple(found)

    def _sum(self) -> _Sum:
        # Asked several times for each status, and latencies take long to merge.
        if self._total is None:
            self._total = self._before.copy()
            for _, _, status in self._last.values():
                self._total.add(status)
        return self._total


_ADDED = ("failures", "retries", "timeouts", "outages", "given_up")  # they go on adding up
_NOW = ("waiting", "parked_lanes", "late", "in_outage")  # of tasks that are at work


class _Sum:
    """What several tasks said of failures, rules and latency, as one."""

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.undecided: Counter[str] = Counter()
        self.why: dict[str, str] = {}
        self.latency: Latency | None = None

    def copy(self) -> _Sum:
        other = _Sum()
        other.numbers, other.errors = self.numbers.copy(), self.errors.copy()
        other.types, other.undecided = self.types.copy(), self.undecided.copy()
        other.why, other.latency = dict(self.why), self.latency
        for name in _NOW:  # of what is over, nothing is left
            other.numbers.pop(name, None)
        return other

    def add(self, status: Mapping[str, Any]) -> None:
        if not status:
            return
        failures = status["failures"]
        self.numbers.update({name: int(failures[name]) for name in (*_ADDED, *_NOW)})
        self.errors.update(dict(map(tuple, failures["errors"])))
        self.types.update(dict(map(tuple, failures["error_types"])))
        self.undecided.update(status["rules"]["undecided"])
        self.why = {**status["rules"]["why"], **self.why}
        self.latency = merge_latencies((self.latency, _latency(status["latency"])))

    def failures(self, dead_letter_topic: str | None) -> FailureStatus:
        numbers = {name: self.numbers[name] for name in (*_ADDED, *_NOW)}
        found = FailureStatus(**numbers)  # type: ignore[arg-type]
        return replace(
            found,
            in_outage=bool(found.in_outage),
            errors=tuple(self.errors.most_common(50)),
            error_types=tuple(self.types.items()),
            dead_letter_topic=dead_letter_topic,
        )


def _latency(body: Mapping[str, Any] | None) -> Latency | None:
    return None if body is None else Latency.from_json(body)
