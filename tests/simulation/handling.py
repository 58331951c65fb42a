"""Handler of a simulation, and the failure settings of its drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, cast

from core.messages import Place
from drainer.handler import Fatal, Handler, Retry, Skip
from drainer.message import Message, SubMessage
from drainer.model.settings import AfterDead, FailureSettings, Limit, OnFailure
from simulation.account import Account
from simulation.backlog import Act, Backlog
from simulation.loop import work
from simulation.world import World

HANG_S = 1.5  # where there is no timeout
BUSY_S = 0.002


class ScriptedError(Exception):
    """Raised by the handler, because of its script."""


def draw_policy(random: Random) -> FailureSettings:
    return FailureSettings(
        retries=random.choice([0, 0, 1, 3]),
        retry_delay_s=random.choice([0.01, 0.2]),
        retry_max_delay_s=0.3,
        timeout_s=random.choice([0.0, 0.5, 30.0]),
        on_failure=random.choice([*OnFailure, OnFailure.DEAD_LETTER]),
        after_dead=random.choice(list(AfterDead)),
        max_failures=random.choice([Limit(share=0.5), Limit(), Limit(count=1)]),
        breaker=random.random() < 0.6,
        max_outage_s=random.choice([2.0, 600.0]),
        rate=random.choice([None, None, None, None, 50.0]),
        max_doubt_s=random.choice([0.0, 0.0, 0.0, 1.0, 60.0]),
        on_split_failure=random.choice([None, None, *OnFailure, OnFailure.DEAD_LETTER]),
    )


class Downstream:
    """State that every handler of one simulation shares."""

    def __init__(
        self,
        world: World,
        backlog: Backlog,
        account: Account,
        random: Random,
        failing: Callable[[Act], None],
    ) -> None:
        self.world = world
        self.backlog = backlog
        self.account = account
        self.random = random
        self.away = False  # everything fails
        self.repaired = False  # whatever failed for good does so no more
        self.latency_s = random.choice([0.002, 0.02, 0.06, 0.2])
        self.on_threads = random.random() < 0.15  # the handler is a plain def
        self.busy = not self.on_threads and random.random() < 0.1  # it never waits for anything
        self._failing = failing
        self.folds = random.random() < 0.2
        self.batches = random.random() < 0.2
        self.max_batch = random.choice([1, 2, 3, 8])
        self.batch_of = random.choice(["lanes", "lane"])

    def reject(self, message: Message) -> None:
        """Raises where the script has split reject a message."""
        place = message.partition, message.offset, 0
        if place in self.backlog.rejected and not self.repaired:
            self.world.tally["rejected by split"] += 1
            self._failing(Act.REJECT)
            self.account.rejects(place)
            raise ScriptedError(f"{place} is malformed")

    def act_together(self, places: Sequence[Place]) -> Act:
        """Act of a call: the worst that any of them does."""
        acts = [self.act(place) for place in places]
        return max(acts, key=list(Act).index) if len(acts) > 1 else acts[0]

    def latency(self, act: Act) -> float:
        timeout_s = self.account.policy.timeout_s
        if act is Act.HANG:
            return 2 * timeout_s or HANG_S
        latency_s = self.random.expovariate(1 / self.latency_s)
        return min(latency_s, 0.4 * timeout_s) if timeout_s else latency_s

    def act(self, place: Place) -> Act:
        script = self.backlog.scripts.get(place)
        act = Act.SUCCEED if script is None else script.act(self.account.begun[place])
        if self.repaired:
            act = Act.SKIP if script is not None and script.then is Act.SKIP else Act.SUCCEED
        elif self.away and act is Act.SUCCEED:
            act = Act.FAIL
        if act is not Act.SUCCEED:
            self.world.tally[act.value] += 1
            self._failing(act)
        return act

    def conclude(self, places: Sequence[Place], act: Act) -> None:
        """Ends a call by the scripts."""
        account, alone = self.account, len(places) == 1
        if act is Act.SUCCEED or (alone and act is Act.HANG):
            self.world.tally["together"] += not alone
            for place in places:
                account.finish(place)
            return
        self.world.tally["apart"] += not alone
        match act:
            case Act.LATER:
                after_s = self.random.choice([None, 0.05, 0.5])
                account.retry_later(places, after_s)
                raise Retry(after=after_s)
            case Act.SKIP if alone:
                account.skip(places[0])
            case _:
                account.fail_call(places, act.value)
        if act is Act.FATAL:
            raise Fatal("by its script")
        raise Skip("by its script") if act is Act.SKIP else ScriptedError(f"{places} fail")

    def together(self, kind: Any) -> type[Handler]:
        """The same, with what was drawn of folding and batches."""
        if not self.folds and not self.batches:
            return cast(type[Handler], kind)
        parts: dict[str, Any] = {}
        if self.folds:
            parts["coalesce"] = staticmethod(_fold)
        if self.batches:
            parts |= {"handle_batch": kind.call, "max_batch": self.max_batch}
            parts |= {"batch_of": self.batch_of}
        return type("Together", (kind,), parts)

    def handler(self, pause: Callable[[float], None]) -> Handler:
        """A handler of the kind that was drawn; ``pause`` is for its threads."""
        kind: type[Handler] = _on_threads(self, pause) if self.on_threads else _on_the_loop(self)
        kind = self.together(kind)
        if self.backlog.whole:
            return kind()
        backlog, downstream = self.backlog, self

        class Splitting(kind):  # type: ignore[misc, valid-type]
            def split(self, message: Message) -> Iterable[SubMessage]:
                downstream.reject(message)
                return backlog.split(message)

        handler: Handler = Splitting()
        return handler


def _on_the_loop(downstream: Downstream) -> type[Handler]:
    account = downstream.account

    class OnTheLoop(Handler):
        async def handle(self, sub: SubMessage) -> None:
            await self.call([sub])

        async def call(self, subs: Sequence[SubMessage]) -> None:
            places = account.begin(subs)
            act = downstream.act_together(places)
            if downstream.busy and act is not Act.HANG:
                downstream.world.now_s += downstream.random.uniform(0, BUSY_S)
            else:
                try:
                    await work(downstream.latency(act))
                except asyncio.CancelledError:
                    account.fail_call(places, "cancelled")
                    raise
            downstream.conclude(places, act)

    return OnTheLoop


def _on_threads(downstream: Downstream, pause: Callable[[float], None]) -> type[Handler]:
    class OnThreads(Handler):
        def handle(self, sub: SubMessage) -> None:
            self.call([sub])

        def call(self, subs: Sequence[SubMessage]) -> None:
            places = downstream.account.begin(subs)
            act = downstream.act_together(places)
            pause(downstream.latency(act))
            downstream.conclude(places, act)

    return OnThreads


def _fold(earlier: SubMessage, later: SubMessage) -> SubMessage | None:
    """Sometimes a new one, sometimes the later, sometimes none."""
    match later.message.offset % 4:
        case 0:
            return None
        case 1:
            return SubMessage(later.key)
        case _:
            return later
