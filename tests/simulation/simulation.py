"""A whole drain from one seed: over as many processes as it takes, with whoever is on call between
them, and what goes wrong drawn by chance."""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from drainer.core.dispatch import MESSAGE_BYTES, SUB_MESSAGE_BYTES
from drainer.errors import (
    DrainerError,
    Halted,
    HandleFailed,
    LanesParked,
    OffsetMoved,
    SplitFailed,
    ThreadsOverdue,
)
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import LoadedHandler
from drainer.model.option import Concurrency, Lag
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.priority import PriorityClasses
from drainer.model.progress import Outcome
from drainer.model.settings import AfterDead, Limit, LocalSettings
from drainer.model.status import Status, Summary
from drainer.model.sub_messages import LANE_BYTES, SMALL_BYTES
from drainer.operations import start
from drainer.operations.drain import Callbacks, drain
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Request, prepare
from drainer.store.plan_file import PlanFile
from simulation.account import Account
from simulation.aftermath import SLOW_DISK_S, Aftermath
from simulation.backlog import CLASSES, GROUP, TOPIC, Act, Backlog
from simulation.cluster import CONSUMER, Broker, Commits, SimCluster
from simulation.disk import Disk, DiskPath
from simulation.handling import Downstream, draw_policy
from simulation.process import Process, SimSettings, engine, replaced, runtime
from simulation.troubles import Troubles
from simulation.world import Killed, World

NAME = "orders.billing.plan.json"
# Stands in for a digest of all that is imported, which takes longer than most seeds.
CODE = "sha256:" + "0" * 64
LIVES_MOST = 60
PATIENCE = 2  # lives without trouble, before a person repairs the handler too
FIRST = 0.4  # of the seeds name classes that come first, in some of their lives
CHANGING = 0.3  # of the seeds have a limit on what runs at once that changes
FOLLOWS = 0.25  # of the seeds follow their topic, until they are as near as this
LAGS = (Lag(messages=0), Lag(messages=5), Lag(seconds=0.6), Lag(seconds=3.0))
SUBS_MOST = 6  # of a message
CLIENTS = {
    True: ClientSettings.load("sim:9092"),
    False: ClientSettings.load("sim:9092", None, ["isolation.level=read_uncommitted"]),
}


class Simulation:
    """One seed. ``run`` raises AssertionError when a law does not hold."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.random = random = world.random("simulation")
        self.backlog = Backlog(world.random("backlog"))
        self.first_ends = dict(self.backlog.ends)
        self.account = Account(world, self.backlog)
        self.account.policy = draw_policy(world.random("policy"))
        self.downstream = Downstream(
            world, self.backlog, self.account, world.random("downstream"), self._failing
        )
        self.account.exact = not self.downstream.on_threads
        self.broker = Broker(world, self.backlog)
        self.broker.may_commit = self._check_commit
        self.broker.pause = self._pause
        self.broker.unanswered = random.choice([0, 0, 0.3, 0.8])
        self.broker.unread = random.choice([0, 0, 0, 0.05])
        self.broker.letters_lost = random.choice([0, 0, 0.2])
        self.disk = Disk(world, self._pause_for_disk)
        self.slow_disk = random.choice([0, 0.2, 0.8])  # the share of operations
        self.slow_sync_s = random.choice([0.05, 0.3, 1.0])
        at_once = random.choice([1, 2, 3, 5, 8])
        self.whims = world.random("limits")
        changes = self.whims.random() < CHANGING
        self.wishes = world.random("classes")
        self.names_classes = self.wishes.random() < FIRST
        self.settings = LocalSettings(
            concurrency=Concurrency.auto(at_once) if changes else at_once,
            buffer_bytes=random.choice([8_000, 40_000, 4_000_000]),
            plan_interval_s=random.choice([0.1, 0.3, 1.0]),
            grace_s=random.choice([0.0, 0.1, 5.0]),
            wait_for_group_s=world.random("waiting").choice([0.0, 3.0, 30.0]),
        )
        self.follows = world.random("follows")
        if self.follows.random() < FOLLOWS:
            self.backlog.follows = True
            self.settings = replace(self.settings, until_lag=self.follows.choice(LAGS))
            world.tally["follows"] += 1
        self.account.sure_until_s = lambda: self.process.lock.sure_until_s
        self.account.concurrency = at_once
        self.outages_after = random.choice([3, 50])  # failures that open the circuit breaker
        self.troubled = random.choice([0, 1, 2, 3, 4, 5, 6, 6])  # lives with some trouble
        self.troubles = Troubles(self)
        self.broker.later = self.troubles.arrival
        client = CLIENTS[self.backlog.committed_only]
        self.client = SimSettings(client.bootstrap_servers, client.properties, it=self)
        self.handler = LoadedHandler("simulated", self.downstream.handler(self._pause))
        vars(self.handler)["code"] = CODE
        self.path = DiskPath(f"/disk/{NAME}")
        self.lives = 0
        self.over = False
        self.doomed = False  # nothing can finish this drain any more
        self.process: Process
        self.runtime = runtime(self, lambda: self.process)
        self.began_s = 0.0  # this life
        self.died = False
        self.power_lost = False  # if it dies
        self.may_end: set[type[DrainerError]] = set()  # for what happened, it may
        world.each_turn = self._each_turn

    def run(self) -> None:
        world = self.world
        gc.disable()  # what it finds, and when, would depend on the seeds before this one
        try:
            with replaced(self, lambda: self.process):
                while world.breach is None and not self.over:
                    self._live()
                    with suppress(Killed):
                        world.ensure(self.lives < LIVES_MOST, f"not done after {LIVES_MOST} lives")
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
        self.process.went_on = self.account.end_pass
        self.may_end = set()
        if self.broker.late:  # of the process before: this one can't know that it was its own
            self.may_end.add(OffsetMoved)
        if Outcome.DEAD in self.account.counted():
            self.may_end |= {LanesParked, Halted}  # lanes behind dead letters may be parked
        self.began_s = world.now_s
        self.died = self.power_lost = False
        world.fate = None
        if self.lives <= self.troubled:
            self.troubles.draw()
        elif self.lives > self.troubled + PATIENCE:
            self._be_lenient()
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
                Aftermath(self).look_after(summary, stopped)

    def _begin_to_run(self) -> None:
        self.broker.seen = ""  # what was seen before, was looked at again since

    def wait_between_passes(self) -> None:
        """The drain waits until the consumers have left, and tries its commit meanwhile."""
        self.world.tally["waits"] += 1
        self.world.ensure(not self.account.running, "a call still runs, and will be repeated")
        if self.broker.seen == CONSUMER:
            self.broker.seen = ""

    def _be_lenient(self) -> None:
        """A person repairs the handler, and resumes so that nothing is left over."""
        self.downstream.repaired = True
        self.account.policy = replace(
            self.account.policy, after_dead=AfterDead.CONTINUE, max_failures=Limit()
        )

    def _command(self) -> Summary | None:
        """Run the command of a person: ``run``, or ``resume`` when there is a plan."""
        cluster, file = self.process.cluster, PlanFile(self.path)
        policy = replace(self.account.policy, skip=self.backlog.rules)
        if self.path.exists():
            loaded = file.load()
            resume = ResumeRequest(policy, classes=self._classes(loaded.plan.account.classes))
            prepared = prepare_resume(
                *(cluster, file, loaded, self.settings, resume),
                runtime=self.runtime,
                load=lambda *_: self.handler,
            )
        else:
            nowhere = None in self.broker.committed.values()
            request = Request(
                topic=TOPIC,
                group=GROUP,
                handler=self.handler,
                from_="earliest" if nowhere else "committed",
                order=Order(self.backlog.order),
                plan_path=self.path,
                failures=policy,
                classes=self._classes(PriorityClasses()) or PriorityClasses(),
            )
            with patch.object(start, "sampled", lambda *_: []):  # Only the source has messages.
                prepared = prepare(cluster, request, self.settings, self.runtime)
            if prepared.is_empty:
                return None
        return drain(
            cluster,
            replace(prepared, engine=engine(self)),
            self.settings,
            Callbacks(self._observe, self.world.note),
            runtime=self.runtime,
            make_lock=self._lock,
        )

    def _classes(self, known: PriorityClasses) -> PriorityClasses | None:
        """Classes that this life is to take first; None when none are named."""
        if not self.names_classes or self.wishes.random() < 0.4:
            return None
        wheres = self.wishes.sample(sorted(CLASSES), self.wishes.choice([1, 1, 2]))
        self.world.tally["classes"] += len(wheres)
        return known.requested(wheres, only=self.wishes.random() < 0.3 and not self.backlog.follows)

    # Questions while it runs.

    def _lock(self, *_: object, **__: object) -> Any:
        return self.process.lock

    def _failing(self, act: Act) -> None:
        if act is Act.REJECT:
            self.may_end |= {SplitFailed, Halted, LanesParked}
        elif act not in (Act.LATER, Act.SKIP):
            self.may_end |= {HandleFailed, Halted, LanesParked, ThreadsOverdue}

    def _check_commit(self, commits: Commits) -> None:
        """The group may only be put to where the plan is that a loss of power leaves."""
        synced = self.disk.synced(NAME)
        self.world.ensure(synced is not None, "a commit without a plan on the disk")
        assert synced is not None
        plan = OffsetPlan.decode(synced)
        for number, offset in commits.items():
            start, watermark = self.backlog.starts[number], plan.account.watermark(number)
            self.world.ensure(offset <= watermark, f"commits {offset}, the plan has {watermark}")
            self.account.check_below(number, start, offset, self.account.known, "a commit")

    def _observe(self, status: Status) -> None:
        ensure, buffer_bytes = self.world.ensure, self.settings.buffer_bytes
        sub_message_bytes = SUB_MESSAGE_BYTES + 2 * LANE_BYTES + 2 * SMALL_BYTES
        message_bytes = self.backlog.size_most + MESSAGE_BYTES + SUBS_MOST * sub_message_bytes
        ensure(
            status.limits.buffered_bytes <= buffer_bytes // 2 + message_bytes,
            f"{status.limits.buffered_bytes} bytes are pending,"
            f" of {buffer_bytes} and {message_bytes}",
        )

    def _each_turn(self) -> None:
        if self.process.dispatcher is not None:
            self.account.check_now(self.process.dispatcher)

    def _pause(self, seconds: float) -> None:
        self.process.pause(seconds)

    def _pause_for_disk(self, what: str) -> None:
        if self.slow_disk and self.process.threads.inside and self.random.random() < self.slow_disk:
            most_s = self.slow_sync_s if "sync" in what else SLOW_DISK_S
            self.process.pause(self.random.uniform(0, most_s))
