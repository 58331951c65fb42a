"""A whole drain from one seed: over as many processes as it takes, with whoever is on call between
them, and what goes wrong drawn by chance."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial

from drainer.core.dispatch import MESSAGE_BYTES, SUB_MESSAGE_BYTES
from drainer.core.order import Order
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Outcome
from drainer.engine.keeper import JOURNAL_INTERVAL_S
from drainer.engine.local import Signalled
from drainer.engine.pump import SLICE_CHECK
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.errors import (
    EXIT_DONE,
    BrokerUnreachable,
    DrainerError,
    GroupActive,
    GroupJoined,
    HandleFailed,
    Interrupted,
    LockLost,
    OffsetMoved,
    PlanNotWritten,
    PlanRefused,
    RecordsDeleted,
    Refused,
    TopicGone,
)
from drainer.handler import Handler
from drainer.kafka.settings import ClientSettings
from drainer.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.operations.drain import drain
from drainer.operations.resume import prepare_resume
from drainer.operations.start import Request, prepare
from drainer.store.plan_file import PlanFile
from simulation.account import INSTANT_S, Account
from simulation.backlog import GROUP, TOPIC, Act, Backlog, Place
from simulation.cluster import Broker, Commits, SimCluster
from simulation.disk import Disk, DiskPath
from simulation.process import Process, replaced
from simulation.world import EPOCH_S, Fate, Killed, World

NAME = "orders.billing.plan.json"
PLAN = f"/disk/{NAME}"
LIVES_MOST = 60
SUBS_MOST = 6  # of a message
SLOW_DISK_S = 0.02
CLIENTS = {
    True: ClientSettings.load("sim:9092"),
    False: ClientSettings.load("sim:9092", None, ["isolation.level=read_uncommitted"]),
}

TROUBLES = {
    "death": 25,
    "signal": 3,
    "stranger": 3,
    "move": 2,
    "lock": 1,
    "unsure": 2,
    "outage": 2,
    "full": 2,
    "retention": 1,
    "remade": 0.3,
    "appended": 1,
}
DEATHS = {  # at which steps, and at which of them on average
    "": 80,
    "disk": 12,
    "disk append": 5,
    "disk append beside": 2,
    "disk rename": 2,
    "disk remove": 3,
    "disk sync": 3,
    "ask": 10,
    "commit": 2,
    "handle": 8,
    "done": 8,
}


class ScriptedFailure(Exception):
    """Raised by the handler, because its script says so."""


class Simulation:
    """One seed. ``run`` raises AssertionError when a law does not hold."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.random = random = world.random("simulation")
        self.backlog = Backlog(world.random("backlog"))
        self.account = Account(world, self.backlog)
        self.broker = Broker(world, self.backlog)
        self.broker.may_commit = self._check_commit
        self.broker.pause = self._pause
        self.broker.later = partial(self._after, "arrival")
        self.broker.unanswered = random.choice([0, 0, 0.3, 0.8])
        self.broker.unread = random.choice([0, 0, 0, 0.05])
        self.disk = Disk(world, self._pause_for_disk)
        self.slow_disk = random.choice([0, 0.2, 0.8])  # the share of operations
        self.slow_sync_s = random.choice([0.05, 0.3, 1.0])
        self.threads = random.random() < 0.15  # the handler is a plain def
        self.busy = not self.threads and random.random() < 0.1  # it never waits for anything
        self.latency_s = random.choice([0.002, 0.02, 0.06, 0.2])
        self.settings = LocalSettings(
            concurrency=random.choice([1, 2, 3, 5, 8]),
            buffer_bytes=random.choice([8_000, 40_000, 4_000_000]),
            plan_interval_s=random.choice([0.1, 0.3, 1.0]),
            grace_s=random.choice([0.0, 0.1, 5.0]),
        )
        self.account.concurrency = self.settings.concurrency
        self.account.exact = not self.threads
        self.troubled = random.choice([0, 1, 2, 3, 4, 5, 6, 6])  # lives with some trouble
        self.client = CLIENTS[self.backlog.committed_only]
        self.handler = LoadedHandler("simulated", _handler(self))
        self.path = DiskPath(PLAN)
        self.lives = 0
        self.over = False
        self.doomed = False  # nothing can finish this drain any more
        self.process: Process
        self.began_s = 0.0  # this life
        self.died = False
        self.power_lost = False  # if it dies
        self.may_end: set[type[DrainerError]] = set()  # for what happened, it may
        world.each_turn = self._each_turn

    def run(self) -> None:
        world = self.world
        gc.disable()  # what it finds, and when, would depend on the seeds before this one
        try:
            with replaced(world, self.disk, self.broker, self.handler, lambda: self.process):
                while world.breach is None and not self.over and self.lives < LIVES_MOST:
                    self._live()
                if world.breach is None:
                    with suppress(Killed):
                        world.insist(self.over, f"not done after {LIVES_MOST} lives")
        finally:
            gc.enable()
        assert world.breach is None, f"{world.breach}\n{world.story}"

    def _live(self) -> None:
        """One process: it ends by itself or dies, and a person looks after what it left."""
        world = self.world
        self.lives += 1
        world.revive()
        world.note(f"life {self.lives}")
        self.process = Process(world, SimCluster(self.broker, self.client))
        self.process.began = self._begin_to_run
        self.may_end = set()
        if self.broker.late:  # of the process before: this one can't know that it was its own
            self.may_end.add(OffsetMoved)
        self.began_s = world.now_s
        self.died = self.power_lost = False
        world.fate = None
        if self.lives <= self.troubled:
            self._draw_troubles()
        summary: Summary | None = None
        stopped: DrainerError | None = None
        try:
            summary = self._command()
        except Killed:
            self.died = True
        except DrainerError as error:
            stopped = error
        self.process.end()
        self.disk.forget_process()
        if world.breach is None:
            world.revive()
            world.fate = None
            with suppress(Killed):
                self._look_after(summary, stopped)

    def _begin_to_run(self) -> None:
        self.broker.seen = ""  # what was seen before, was looked at again since

    def _command(self) -> Summary | None:
        """What a person types: ``run``, or ``resume`` when there is a plan."""
        cluster, file = self.process.cluster, PlanFile(self.path)
        if self.path.exists():
            prepared = prepare_resume(cluster, file, file.load(), self.settings)
        else:
            request = Request(
                topic=TOPIC,
                group=GROUP,
                handler=self.handler,
                from_=self.backlog.from_,
                order=Order(self.backlog.order),
                plan_path=self.path,
            )
            prepared = prepare(cluster, request, self.settings)
            if not prepared.action.offsets:
                return None
        return drain(cluster, prepared, self.settings, self._observe, self.world.note)

    # What goes wrong.

    def _draw_troubles(self) -> None:
        random = self.random
        for kind in random.choices(
            list(TROUBLES), list(TROUBLES.values()), k=random.choice([1, 1, 2])
        ):
            if kind == "death":
                at = random.choice(list(DEATHS))
                self._will_die(at, DEATHS[at])
            elif kind in ("stranger", "move", "remade") and random.random() < 0.6:
                at_question = self.broker.asked + 1 + int(random.expovariate(1 / 12))
                self.broker.at_question[at_question] = partial(self._happen, kind)
            else:
                self._later(kind, random.expovariate(1 / random.choice([0.2, 1.5])))
        if self.broker.late:
            self._later("arrival", random.choice([0, 0.5]))

    def _later(self, kind: str, seconds: float) -> None:
        began = self.process.began

        def schedule() -> None:
            began()
            self._after(kind, seconds)

        self.process.began = schedule

    def _after(self, kind: str, seconds: float) -> None:
        if self.process.loop is not None:
            self.process.loop.call_later(seconds, self._happen, kind)

    def _happen(self, kind: str) -> None:
        self.world.note(f"it happens: {kind}")
        self.world.tally[kind] += 1
        getattr(self, f"_{kind}")()
        if kind in TROUBLES and self.random.random() < 0.15:  # it seldom comes alone
            self._will_die(self.random.choice(["", "disk", "ask"]), 6)

    def _will_die(self, at: str, mean: float) -> None:
        self.world.fate = Fate(at, 1 + int(self.random.expovariate(1 / mean)))
        self.power_lost = self.random.random() < 0.4

    def _signal(self) -> None:
        self.may_end.add(Signalled)
        self.process.hear(self.random.choice(["SIGINT", "SIGTERM", "SIGHUP"]))
        if self.random.random() < 0.4:
            self._after("signal", self.random.choice([0, 0.05, 0.3]))

    def _stranger(self) -> None:
        self.may_end.add(GroupJoined)
        self.broker.arrive()
        self.broker.stranger = True
        if self.random.random() < 0.4:
            at_question = self.broker.asked + self.random.randint(1, 4)
            self.broker.at_question[at_question] = partial(self._happen, "leaving")

    def _leaving(self) -> None:
        self.broker.stranger = False

    def _move(self) -> None:
        if not self.path.exists():
            return  # it would be another backlog
        self.may_end.add(OffsetMoved)
        number = self.random.choice(list(self.backlog.logs))
        self.broker.arrive()
        # Where this drain never was: what lies between, it takes for its own.
        places = [self.backlog.logs[number].end + 7]
        if self.backlog.starts[number]:
            places.append(self.backlog.starts[number] - 1)
        self.broker.move(number, self.random.choice(places))

    def _lock(self) -> None:
        self.may_end.add(LockLost)
        self.process.lock.lost = LockLost("another drain took the lock on group billing")

    def _unsure(self) -> None:
        self.process.lock.unsure_since_s = self.world.now_s
        self.may_end.add(Interrupted)  # when the last commit can't be made meanwhile
        self._after("sure", self.random.choice([0.1, 2, 20]))

    def _sure(self) -> None:
        self.process.lock.unsure_since_s = None

    def _outage(self) -> None:
        self.broker.unreachable = True
        self.may_end.add(Interrupted)
        self._after("recovery", self.random.choice([0.1, 2, 100]))

    def _recovery(self) -> None:
        self.broker.unreachable = False

    def _full(self) -> None:
        self.disk.room = self.random.choice([0, 50, 150, 300])
        self.may_end.add(PlanNotWritten)
        self._after("room", self.random.choice([0.02, 0.06, 0.3, 100]))

    def _room(self) -> None:
        self.disk.room = None
        if self.random.random() < 0.5:  # what did not fit goes first, or it is missed now
            self._will_die("disk", 4)

    def _retention(self) -> None:
        """Deletes what is finished, and now and then what is not."""
        number = self.random.choice(list(self.backlog.logs))
        log = self.backlog.logs[number]
        ours = self.broker.ours[number]
        if ours is not None:
            log.start = max(log.start, min(ours.offset, log.end))
        end = self.backlog.ends[number]
        if log.start + 1 < end and self.random.random() < 0.2:
            self.world.tally["records deleted"] += 1
            log.start = self.random.randint(log.start + 1, end)
            self.doomed = True
            self.may_end |= {RecordsDeleted, Interrupted}

    def _remade(self) -> None:
        self.broker.topic_id = "another-id-of-22-bytes"
        self.doomed = True
        self.may_end.add(TopicGone)

    def _appended(self) -> None:
        number = self.random.choice(list(self.backlog.logs))
        self.backlog.add_later(number, self.random)

    def _arrival(self) -> None:
        self.broker.arrive()

    # What a handler does.

    def latency(self) -> float:
        return self.random.expovariate(1 / self.latency_s)

    def act(self, place: Place) -> Act:
        script = self.backlog.scripts.get(place)
        act = Act.SUCCEED if script is None else script.act(self.account.attempts[place])
        if act is Act.FAIL:
            self.world.tally["failures"] += 1
            self.may_end.add(HandleFailed)
        return act

    # What a person finds afterwards, and does.

    def _look_after(self, summary: Summary | None, stopped: DrainerError | None) -> None:
        world, account = self.world, self.account
        if self.died:
            world.tally["power losses" if self.power_lost else "kills"] += 1
        elif stopped is not None:
            self._check_stop(stopped)
        elif summary is not None:
            self._check_summary(summary)
        else:
            self._nothing_to_drain()
        since_s = self._safe_since_s()
        if self.died and self.power_lost:
            self.disk.lose_power(self.random)
        kept = self._check_files(since_s)
        self._mend()
        account.end_life(kept)
        if summary is not None and summary.exit_code == EXIT_DONE:
            self._check_end(summary)

    def _safe_since_s(self) -> float:
        """What had finished by then is to be found in the files, whatever ended the process."""
        world, process = self.world, self.process
        since_s = world.now_s
        if self.died and self.power_lost:
            written = self.disk.synced(NAME)
            if written is None:
                return since_s
            updated = datetime.fromisoformat(OffsetPlan.decode(written).updated)
            since_s = updated.timestamp() - EPOCH_S
            # An interval, and two saves: the last one that was whole, and the one under way.
            save_s = 10 * SLOW_DISK_S + 2 * self.slow_sync_s + 0.05
            longest_s = self.settings.plan_interval_s + 2 * save_s + world.longest_turn_s
            world.insist(
                since_s < self.began_s
                or PlanNotWritten in self.may_end
                or world.now_s - since_s <= longest_s
                or not self.account.running,
                f"the plan is {world.now_s - since_s:.3f} s old",
            )
        elif self.died:
            since_s -= JOURNAL_INTERVAL_S + world.longest_turn_s
        for moment_s in self.disk.unwritten_s.values():
            since_s = min(since_s, moment_s - JOURNAL_INTERVAL_S - world.longest_turn_s)
        if process.gave_up_s is not None:
            since_s = min(since_s, process.gave_up_s)
        return since_s

    def _check_files(self, since_s: float) -> dict[Place, Outcome]:
        """Gives what the next process will know to be finished."""
        world, account = self.world, self.account
        kept: dict[Place, Outcome] = {}
        if self.path.exists():
            try:
                loaded = PlanFile(self.path).load()
            except PlanRefused as error:
                world.insist(False, f"the plan can't be loaded: {error}")
            kept = account.check_files(loaded.plan)
            account.check_closed(kept)
            world.tally["torn"] += loaded.journal_torn
        for place in account.known:
            at_s = account.finished_at_s[place]
            world.insist(
                place in kept or at_s >= since_s - INSTANT_S,
                f"{place} finished at {at_s:.3f}, and is not in the files: {since_s:.3f} is safe",
            )
        for number, commit in self.broker.ours.items():
            if commit is not None:
                start = self.backlog.starts[number]
                account.check_below(number, start, commit.offset, kept, "the group's offset")
        return kept

    def _mend(self) -> None:
        """What a person does before the next try."""
        broker, world = self.broker, self.world
        world.tally["stopped for others"] += bool(broker.seen)
        broker.at_question.clear()
        broker.stranger = broker.unreachable = False
        if broker.moved:
            broker.put_back()
        self.disk.room = None
        self.disk.unwritten_s.clear()
        world.wait(self.random.choice([0, 1, 60]))

    def _check_stop(self, error: DrainerError) -> None:
        """It did not begin, or not for long."""
        broker = self.broker
        reasons: list[type[DrainerError]] = []
        if GroupJoined in self.may_end:
            reasons.append(GroupActive)
        if broker.unreachable or broker.unread:
            reasons.append(BrokerUnreachable)
        if broker.moved or self.doomed or OffsetMoved in self.may_end:
            reasons.append(Refused)
        if PlanNotWritten in self.may_end:
            reasons.append(PlanNotWritten)
        self.world.insist(isinstance(error, tuple(reasons)), f"stopped for no reason: {error}")
        self.world.tally["refused"] += 1
        if self.doomed and not broker.moved and not isinstance(error, BrokerUnreachable):
            self.over = True

    def _check_summary(self, summary: Summary) -> None:
        insist, code = self.world.insist, summary.exit_code
        self.world.tally[f"exit {code}"] += 1
        insist(summary.conserved, "the summary's account does not add up")
        insist("bug of drainer" not in str(summary.hint), f"{summary.error}")
        if self.broker.unanswered or self.broker.unread:
            self.may_end.add(Interrupted)  # when the last commit stays in doubt
        cause = type(summary.cause)
        insist(code == EXIT_DONE or cause in self.may_end, f"exit {code}: {summary.error}")
        insist((summary.cause is None) == (code == EXIT_DONE), f"exit {code}, {cause}")

    def _nothing_to_drain(self) -> None:
        self.world.insist(not any(self._sizes()), "it finds no backlog")
        self.over = True

    def _check_end(self, summary: Summary) -> None:
        insist, ends = self.world.insist, self.backlog.ends
        self.over = True
        self.account.check_end(PlanFile(self.path).load().plan)
        group = {n: None if o is None else o.offset for n, o in self.broker.ours.items()}
        insist(group == ends, f"done, and the group is at {group}")
        insist(list(self.disk.files) == [NAME], f"files are left: {list(self.disk.files)}")

    def _check_commit(self, commits: Commits) -> None:
        """The group may only be put to where the plan is that a loss of power leaves."""
        synced = self.disk.synced(NAME)
        self.world.insist(synced is not None, "a commit without a plan on the disk")
        assert synced is not None
        plan = OffsetPlan.decode(synced)
        for number, commit in commits.items():
            offset = commit.offset
            start, watermark = self.backlog.starts[number], plan.watermark(number)
            self.world.insist(offset <= watermark, f"commits {offset}, the plan has {watermark}")
            self.account.check_below(number, start, offset, self.account.known, "a commit")

    def _observe(self, status: Status) -> None:
        insist, buffer_bytes = self.world.insist, self.settings.buffer_bytes
        message_bytes = self.backlog.size_most + MESSAGE_BYTES + SUBS_MOST * SUB_MESSAGE_BYTES
        insist(
            status.buffered_bytes <= buffer_bytes // 2 + SLICE_CHECK * message_bytes,
            f"{status.buffered_bytes} bytes are pending",
        )

    def _each_turn(self) -> None:
        if self.process.drain is not None:
            self.account.check_now(self.process.drain.dispatcher)

    def _pause(self, seconds: float) -> None:
        self.process.pause(seconds)

    def _pause_for_disk(self, what: str) -> None:
        threads = self.process.threads
        if self.slow_disk and threads is not None and threads.inside:
            most_s = self.slow_sync_s if "sync" in what else SLOW_DISK_S
            if self.random.random() < self.slow_disk:
                threads.sleep(self.random.uniform(0, most_s))

    def _sizes(self) -> list[int]:
        return [end - self.backlog.starts[number] for number, end in self.backlog.ends.items()]


def _handler(simulation: Simulation) -> Handler:
    """A handler that keeps account, of the kind that the seed has drawn."""
    account, backlog, world = simulation.account, simulation.backlog, simulation.world

    def conclude(place: Place) -> None:
        if simulation.act(place) is Act.FAIL:
            account.leave(place, "failed")
            raise ScriptedFailure(f"{place} fails")
        account.finish(place)

    class OnTheLoop(Handler):
        async def handle(self, sub: SubMessage) -> None:
            place = account.begin(sub)
            if simulation.busy:
                world.now_s += simulation.random.uniform(0, 0.002)
            else:
                try:
                    await asyncio.sleep(simulation.latency())
                except asyncio.CancelledError:
                    account.leave(place, "cancelled")
                    raise
            conclude(place)

    class OnThreads(Handler):
        def handle(self, sub: SubMessage) -> None:
            place = account.begin(sub)
            simulation.process.pause(simulation.latency())
            conclude(place)

    kind: type[Handler] = OnThreads if simulation.threads else OnTheLoop
    if backlog.whole:
        return kind()

    class Splitting(kind):  # type: ignore[misc, valid-type]
        def split(self, message: Message) -> Iterable[SubMessage]:
            return backlog.split(message)

    handler: Handler = Splitting()
    return handler
