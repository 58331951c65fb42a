"""Work of a person when a process has ended, before the next one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from core.messages import Place
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    BrokerUnreachable,
    ClassWaits,
    DeadLetterNotWritten,
    DrainerError,
    GroupActive,
    GroupJoined,
    Interrupted,
    OffsetMoved,
    PlanNotWritten,
    PlanRefused,
    RecordsDeleted,
    Refused,
    Signalled,
)
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Outcome
from drainer.model.settings import JOURNAL_INTERVAL_S
from drainer.model.status import CLASS_DONE, Summary
from drainer.store.plan_file import PlanFile
from simulation.account import INSTANT_S
from simulation.world import EPOCH_S

if TYPE_CHECKING:
    from simulation.simulation import Simulation

SLOW_DISK_S = 0.02
PLAN_IS_LOST = 0.05  # how often, between two lives


class Aftermath:
    """Looks at the end of a simulation's process, by the laws."""

    def __init__(self, simulation: Simulation) -> None:
        self._it = simulation
        self._world = simulation.world
        self._account = simulation.account
        self._broker = simulation.broker

    def look_after(self, summary: Summary | None, stopped: DrainerError | None) -> None:
        it, world = self._it, self._world
        done = summary is not None and summary.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS)
        if summary is not None:
            world.tally["waits for the rest"] += sum(
                each.deferred for each in summary.last.progress.classes
            )
            if summary.status == CLASS_DONE:
                done = False
                world.tally["only a class"] += 1
        if it.died:
            world.tally["power losses" if it.power_lost else "kills"] += 1
        elif stopped is not None:
            self._check_stop(stopped)
        elif summary is not None:
            self._check_summary(summary)
        else:
            self._nothing_to_drain()
        since_s = self._safe_since_s()
        if it.died and it.power_lost:
            it.disk.lose_power(it.random)
        kept = self._check_files(since_s)
        self._repair()
        if not done and not it.over and self._loses_plan():
            self._lose_plan()
        else:
            self._account.end_life(kept)
        if done:
            self._check_end()

    def _check_stop(self, error: DrainerError) -> None:
        """The drain did not begin, or not for long."""
        it, broker = self._it, self._broker
        reasons: list[type[DrainerError]] = []
        if GroupJoined in it.may_end:
            reasons.append(GroupActive)
        if broker.unreachable or broker.unread:
            reasons.append(BrokerUnreachable)
        if broker.moved or it.doomed or OffsetMoved in it.may_end:
            reasons.append(Refused)
        if PlanNotWritten in it.may_end:
            reasons.append(PlanNotWritten)
        self._world.ensure(isinstance(error, tuple(reasons)), f"stopped for no reason: {error}")
        self._world.tally["refused"] += 1
        if it.doomed and not broker.moved and not isinstance(error, BrokerUnreachable):
            it.over = True

    def _check_summary(self, summary: Summary) -> None:
        ensure, code, may_end = self._world.ensure, summary.exit_code, self._it.may_end
        self._world.tally[f"exit {code}"] += 1
        ensure(summary.conserved, "the summary's account does not add up")
        ensure("bug of drainer" not in str(summary.hint), f"{summary.error}")
        if self._broker.unanswered or self._broker.unread:
            may_end.add(Interrupted)  # when the last commit stays in doubt
        if Signalled in may_end:
            may_end.add(Interrupted)  # when something went wrong after that
        if self._broker.letters_lost:
            may_end.add(DeadLetterNotWritten)
        if any(
            each.ended and (each.deferred or each.cut) for each in summary.last.progress.classes
        ):
            may_end.add(ClassWaits)  # only that class was requested, and some of it waits
        gave_up = self._account.counted() & {Outcome.DEAD, Outcome.FAILED}
        done = EXIT_DEAD_LETTERS if gave_up or summary.lost else EXIT_DONE
        ensure(code == done or type(summary.cause) in may_end, f"exit {code}: {summary.error}")
        ensure((summary.cause is None) == (code == done), f"exit {code}, {summary.error}")
        if isinstance(summary.cause, RecordsDeleted):
            ensure(
                not summary.messages.pending or summary.last.failures.parked_lanes,
                f"{summary.messages.pending} messages were read and are left",
            )

    def _nothing_to_drain(self) -> None:
        ends, starts = self._it.backlog.ends, self._it.backlog.starts
        for number, end in ends.items():
            committed = self._broker.committed[number]
            start = starts[number] if committed is None else committed
            self._world.ensure(start >= end, "it finds no backlog")
        self._it.over = True

    def _safe_since_s(self) -> float:
        """Time by which all that finished is in the files, whatever ended the process."""
        it, world = self._it, self._world
        since_s = world.now_s
        late_s = JOURNAL_INTERVAL_S + world.longest_turn_s
        if it.died and it.power_lost:
            written = it.disk.synced(it.path.name)
            if written is None:
                return since_s
            updated = datetime.fromisoformat(OffsetPlan.decode(written).account.updated)
            since_s = updated.timestamp() - EPOCH_S
            # An interval, and two saves: the last one that was whole, and the one under way.
            save_s = 10 * SLOW_DISK_S + 2 * it.slow_sync_s + 0.05
            longest_s = it.settings.plan_interval_s + 2 * save_s + world.longest_turn_s
            world.ensure(
                since_s < it.began_s
                or PlanNotWritten in it.may_end
                or world.now_s - since_s <= longest_s
                or not self._account.running,
                f"the plan is {world.now_s - since_s:.3f} s old",
            )
        elif it.died:
            since_s -= late_s
        for moment_s in it.disk.unwritten_s.values():
            since_s = min(since_s, moment_s - late_s)
        if it.process.gave_up_s is not None:
            since_s = min(since_s, it.process.gave_up_s)
        return since_s

    def _check_files(self, since_s: float) -> dict[Place, Outcome]:
        """Gives what the next process will know to be finished."""
        it, world, account = self._it, self._world, self._account
        kept: dict[Place, Outcome] = {}
        if it.path.exists():
            try:
                loaded = PlanFile(it.path).load()
            except PlanRefused as error:
                world.ensure(False, f"the plan can't be loaded: {error}")
            kept = account.check_files(loaded.plan)
            account.check_closed(kept)
            world.tally["torn"] += loaded.torn
        else:
            kept = {place: account.known[place] for place in account.forgotten}
        for place in account.known:
            at_s = account.finished_at_s[place]
            world.ensure(
                place in kept or at_s >= since_s - INSTANT_S,
                f"{place} finished at {at_s:.3f}, and is not in the files: {since_s:.3f} is safe",
            )
        for number, offset in self._broker.ours.items():
            if offset is not None:
                start = it.backlog.starts[number]
                account.check_below(number, start, offset, kept, "the group's offset")
        return kept

    def _repair(self) -> None:
        it, broker = self._it, self._broker
        self._world.tally["stopped for others"] += bool(broker.seen)
        broker.at_question.clear()
        broker.members, broker.unreachable = (), False
        if broker.moved:
            broker.put_back()
        it.downstream.away = False
        it.disk.room = None
        it.disk.unwritten_s.clear()
        self._world.wait(it.random.choice([0, 1, 60]))

    def _loses_plan(self) -> bool:
        it, broker = self._it, self._broker
        committed = all(offset is not None for offset in broker.committed.values())
        may = committed and it.path.exists() and not broker.late and not it.doomed
        may = may and not it.backlog.grown  # a new plan would have those, too
        return it.random.random() < PLAN_IS_LOST and may

    def _lose_plan(self) -> None:
        """Plan and journals are gone; the group's offsets remain."""
        it = self._it
        self._world.note("the plan is lost")
        self._world.tally["plan lost"] += 1
        for name in list(it.disk.files):
            if name.startswith(it.path.name):
                it.disk.unlink(name)
        it.disk.sync_folder()
        self._account.forget({n: o for n, o in self._broker.ours.items() if o is not None})

    def _check_end(self) -> None:
        it, ensure = self._it, self._world.ensure
        it.over = True
        plan = PlanFile(it.path).load().plan
        if it.backlog.follows:
            ends = {n: part.end for n, part in plan.account.partitions.items()}
            ensure(
                all(ends[n] >= end for n, end in it.first_ends.items()), "it ends before its plan"
            )
            it.backlog.end_at(ends)
        self._account.check_end(plan)
        group = {number: self._broker.ours[number] for number in it.backlog.ends}
        ensure(group == it.backlog.ends, f"done, and the group is at {group}")
        ensure(list(it.disk.files) == [it.path.name], f"files are left: {list(it.disk.files)}")
