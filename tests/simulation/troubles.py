"""Troubles of a simulation, and their times."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from drainer.errors import (
    GroupJoined,
    GroupJoinedToo,
    Interrupted,
    LockLost,
    OffsetMoved,
    PlanNotWritten,
    RecordsDeleted,
    Signalled,
    TopicGone,
)
from simulation.cluster import STRANGER
from simulation.world import Death

if TYPE_CHECKING:
    from simulation.simulation import Simulation

TROUBLES = {
    "death": 25,
    "signal": 3,
    "stranger": 3,
    "move": 2,
    "expiry": 2,
    "lock": 1,
    "unsure": 2,
    "outage": 2,
    "full": 2,
    "downstream": 2,
    "retention": 1,
    "remade": 0.3,
    "appended": 1,
}
DEATHS = {  # at which steps, how likely, and at which of them on average
    "": (2, 80),
    "disk": (1, 12),
    "disk append": (1, 5),
    "disk append beside": (3, 2),
    "disk rename": (1, 2),
    "disk remove": (1, 3),
    "disk sync": (1, 3),
    "request": (1, 10),
    "commit": (1, 2),
    "letter": (1, 2),
    "handle": (1, 8),
    "done": (1, 8),
}


class Troubles:
    """Draws what happens to a process, and lets it happen.

    Whatever may end a drain for it is noted in the simulation's ``may_end``.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._it = simulation
        self._world = simulation.world
        self._broker = simulation.broker
        self._random = simulation.world.random("troubles")

    def draw(self) -> None:
        """For the process that begins."""
        random = self._random
        if self._it.backlog.follows:
            for _ in range(self._it.follows.randint(0, 6)):
                kind = "appended" if self._it.follows.random() < 0.9 else "added"
                self._once_it_runs(kind, self._it.follows.expovariate(1.0))
        for kind in random.choices(
            list(TROUBLES), list(TROUBLES.values()), k=random.choice([1, 1, 2])
        ):
            if kind == "death":
                [at] = random.choices(list(DEATHS), [weight for weight, _ in DEATHS.values()])
                self._will_die(at, DEATHS[at][1])
            elif kind in ("stranger", "move", "remade") and random.random() < 0.6:
                at_question = self._broker.requested + 1 + int(random.expovariate(1 / 12))
                self._broker.at_question[at_question] = partial(self._happen, kind)
            else:
                self._once_it_runs(kind, random.expovariate(1 / random.choice([0.2, 1.5])))
        if self._broker.late:
            self._once_it_runs("arrival", random.choice([0, 0.5]))

    def arrival(self, seconds: float) -> None:
        """A commit whose answer is lost arrives then, if it has not before."""
        self._after("arrival", seconds)

    def _once_it_runs(self, kind: str, seconds: float) -> None:
        process = self._it.process
        began = process.began

        def schedule() -> None:
            began()
            self._after(kind, seconds)

        process.began = schedule

    def _after(self, kind: str, seconds: float) -> None:
        self._it.process.later(seconds, partial(self._happen, kind))

    def _happen(self, kind: str) -> None:
        self._world.note(f"it happens: {kind}")
        self._world.tally[kind] += 1
        getattr(self, f"_{kind}")()
        if kind in TROUBLES and self._random.random() < 0.15:  # it seldom comes alone
            self._will_die(self._random.choice(["", "disk", "request"]), 6)

    def _will_die(self, at: str, mean: float) -> None:
        self._world.fate = Death(at, 1 + int(self._random.expovariate(1 / mean)))
        self._it.power_lost = self._random.random() < 0.4

    def _signal(self) -> None:
        self._it.may_end.add(Signalled)
        self._it.process.on_signal(self._random.choice(["SIGINT", "SIGTERM", "SIGHUP"]))
        if self._random.random() < 0.4:
            self._after("signal", self._random.choice([0, 0.05, 0.3]))

    def _stranger(self) -> None:
        self._it.may_end |= {GroupJoined, GroupJoinedToo}
        self._broker.arrive()
        self._broker.members = (STRANGER,)
        if self._random.random() < 0.4:
            at_question = self._broker.requested + self._random.randint(1, 4)
            self._broker.at_question[at_question] = partial(self._happen, "leaving")

    def _leaving(self) -> None:
        self._broker.members = ()

    def _move(self) -> None:
        if not self._it.path.exists():
            return  # it would be another backlog
        self._it.may_end.add(OffsetMoved)
        number = self._random.choice(list(self._it.backlog.logs))
        self._broker.arrive()
        # Where this drain never was: what lies between, it takes for its own.
        places = [self._it.backlog.logs[number].end + 7]
        if self._it.backlog.starts[number]:
            places.append(self._it.backlog.starts[number] - 1)
        self._broker.move(number, self._random.choice(places))

    def _expiry(self) -> None:
        if self._it.path.exists():  # without a plan it would be another backlog
            self._broker.expire()

    def _lock(self) -> None:
        self._it.may_end.add(LockLost)
        self._it.process.lock.lost = LockLost("another drain took the lock on group billing")

    def _unsure(self) -> None:
        self._it.process.lock.sure_until_s = self._world.now_s
        self._it.may_end.add(Interrupted)  # when the last commit can't be made meanwhile
        self._after("sure", self._random.choice([0.1, 2, 8]))

    def _sure(self) -> None:
        self._it.process.lock.sure_until_s = inf

    def _outage(self) -> None:
        self._broker.unreachable = True
        self._it.may_end.add(Interrupted)
        self._after("recovery", self._random.choice([0.1, 2, 20]))

    def _recovery(self) -> None:
        self._broker.unreachable = False

    def _full(self) -> None:
        self._it.disk.room = self._random.choice([0, 50, 150, 300])
        self._it.may_end.add(PlanNotWritten)
        self._after("room", self._random.choice([0.02, 0.06, 0.3, 100]))

    def _room(self) -> None:
        self._it.disk.room = None
        if self._random.random() < 0.5:  # what did not fit goes first, or it is missed now
            self._will_die("disk", 4)

    def _downstream(self) -> None:
        self._it.downstream.away = self._it.account.flaky = True
        self._after("answer", self._random.choice([0.1, 1.5, 10]))

    def _answer(self) -> None:
        self._it.downstream.away = False

    def _retention(self) -> None:
        """Deletes what is finished, and now and then what is not."""
        number = self._random.choice(list(self._it.backlog.logs))
        log = self._it.backlog.logs[number]
        ours = self._broker.ours[number]
        if ours is not None:
            log.start = max(log.start, min(ours, log.end))
        end = self._it.backlog.ends[number]
        if log.start + 1 < end and self._random.random() < 0.2:
            self._world.tally["records deleted"] += 1
            log.start = self._random.randint(log.start + 1, end)
            self._it.doomed = True
            self._it.may_end |= {RecordsDeleted, Interrupted}

    def _remade(self) -> None:
        self._broker.topic_id = "another-id-of-22-bytes"
        self._it.doomed = True
        self._it.may_end.add(TopicGone)

    def _appended(self) -> None:
        number = self._random.choice(list(self._it.backlog.logs))
        self._it.backlog.add_later(number, self._random)

    def _added(self) -> None:
        number = self._it.backlog.add_partition(self._random)
        self._broker.committed[number] = self._broker.ours[number] = None

    def _arrival(self) -> None:
        self._broker.arrive()
