"""The laws: what was handled, in which order and how often, against files and group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf

from core.messages import Place, finished_subs, is_finished, sub_place
from drainer.core.dispatch import Dispatcher
from drainer.message import SubMessage
from drainer.model.claims import ALL, class_of
from drainer.model.plan import OffsetPlan
from drainer.model.progress import ENDS, Counts, Outcome, Progress
from drainer.model.ranges import Range
from drainer.model.settings import JITTER, AfterDead, FailureSettings, OnFailure
from drainer.policy.rate import BURST_S
from simulation.backlog import Act, Backlog, Script
from simulation.world import World

INSTANT_S = 1e-6  # sums of floats differ by less


class Account:
    """Record of what really happened, over all lives of a drain.

    ``known`` is what is finished as far as this life can know: what was in the files when it began,
    and what finished since.
    """

    def __init__(self, world: World, backlog: Backlog) -> None:
        self._world = world
        self._backlog = backlog
        self.known: dict[Place, Outcome] = {}
        self.finished_at_s: dict[Place, float] = {}
        self.running: dict[Place, float] = {}  # since when
        self.begun: Counter[Place] = Counter()
        self.forgotten: set[Place] = set()  # finished, and not by the plan that is there now
        self.forgotten_messages = 0
        self.policy = FailureSettings()
        self.flaky = False  # the downstream fails now and then, whatever it is given
        self.letters: Counter[Place] = Counter()  # that the dead-letter topic holds
        self.given_up: Counter[Place] = Counter()  # attempts with which it may have been
        self.repeats = 0
        self.repeats_allowed = 0
        self.concurrency = 0
        self.limit: Callable[[], int] | None = None  # on what may run, when that changes
        self.sure_until_s: Callable[[], float] = lambda: inf  # of the lock
        self.exact = True  # what comes out of the handler is accounted for at once
        self._calls: dict[Place, int] = {}  # of the handler, by the first that each was given
        self._busy: Counter[Hashable] = Counter()  # lanes with something in the handler
        self._last: dict[tuple[int, Hashable], Place] = {}
        self._seen: set[tuple[int, Hashable]] = set()  # lanes that this life has begun
        self._watermarks: dict[int, int] = {}
        self._begun_now: Counter[Place] = Counter()  # in this life
        self._failed_now: Counter[Place] = Counter()
        self._not_before_s: dict[Place, float] = {}  # the next attempt
        self._skipped: set[Place] = set()  # by the handler
        self._rejected: set[Place] = set()  # by split, in this life
        self._tokens, self._tokens_at_s = 1.0, 0.0  # of --rate
        self._moves = 0  # into the handler and out of it
        self._checked = (-1, 0, 0)

    def begin(self, subs: Sequence[SubMessage]) -> list[Place]:
        """The handler is given one sub-message, or in one call several that end together."""
        members = [member for sub in subs for member in sub.folded]
        places = [sub_place(sub) for sub in members]
        together: set[Place] = set()
        self._world.step(f"handle {' '.join(map(str, places))}")
        self._count_starts(len(subs))
        for sub, place in zip(members, places, strict=True):
            self._begin(sub, place, together)
            together.add(place)
        self._calls[places[0]] = len(places)
        ensure = self._world.ensure
        ensure(len(self._calls) <= self.concurrency, "more at once than --concurrency")
        if self.limit is not None and self.exact:  # threads have some in their hands already
            ensure(len(self._calls) <= self.limit(), "more at once than the limit of now")
        return places

    def _begin(self, sub: SubMessage, place: Place, together: set[Place]) -> None:
        backlog, ensure = self._backlog, self._world.ensure
        self._moves += 1
        ensure(place in backlog.specs, f"{place} is not of the backlog")
        ensure(place not in self.known, f"{place} is finished, and handled again in one life")
        ensure(place not in backlog.ruled_out, f"{place} is handled against a rule")
        ensure(place not in self.running, f"{place} is in the handler already")
        for before in backlog.before[place]:
            if before in together:
                continue
            ensure(before in self.known, f"{place} began before {before} had finished")
            parked = backlog.specs[place] and self._parks_behind(before)
            ensure(not parked, f"{place} began behind the dead letter {before}")
        ensure(sub.attempt == self._begun_now[place] + 1, f"{sub.attempt} is no attempt of {place}")
        ensure(
            self._world.now_s > self._not_before_s.get(place, 0.0) - INSTANT_S,
            f"{place} is tried again too soon",
        )
        self._check_lock(place)
        lanes = backlog.lanes[place]
        for lane in lanes:
            with_it = sum(lane in backlog.lanes[other] for other in together)
            alone = self._busy[lane] == with_it
            ensure(alone, f"{place} and another are at once in lane {lane!r}")
            at = (place[0], lane)
            if at in self._seen:
                ensure(self._last[at] <= place, f"lane {at} went back within one life")
            self._seen.add(at)
            self._last[at] = place
        for other in self.running:
            alone = not backlog.specs[place] or not backlog.specs[other]
            ensure(not alone or other[0] != place[0], f"{place} and {other}: a barrier is alone")
        self._busy.update(lanes)
        self.running[place] = self._world.now_s
        self.repeats += place in self.begun and place not in self._begun_now
        self.begun[place] += 1
        self._begun_now[place] += 1

    def leave(self, place: Place, what: str) -> None:
        """A sub-message comes out of the handler unfinished."""
        self._world.step(f"{what} {place}")
        self._moves += 1
        self._calls.pop(place, None)
        del self.running[place]
        self._busy.subtract(self._backlog.lanes[place])

    def finish(self, place: Place) -> None:
        """The handler has done it."""
        self.leave(place, "done")
        self._finished(place, Outcome.DONE)

    def fail_call(self, places: Sequence[Place], what: str) -> None:
        """The handler raises: of a call with several, it is unknown for which of them."""
        for place in places:
            self.leave(place, what)
        if len(places) == 1:
            self._failed(places[0])
        else:
            self._begin_again(places)

    def _failed(self, place: Place) -> None:
        policy = self.policy
        failures = self._failed_now[place] = self._failed_now[place] + 1
        self.given_up[place] += failures > policy.retries
        self._world.ensure(
            policy.breaker or failures <= policy.retries + 1, f"{place} is tried too often"
        )
        if not policy.breaker:  # otherwise it may be the probe
            whole_s = min(policy.retry_max_delay_s, policy.retry_delay_s * 2 ** (failures - 1))
            self._not_before_s[place] = self._world.now_s + JITTER * whole_s

    def retry_later(self, places: Sequence[Place], after_s: float | None) -> None:
        """The handler raises Retry."""
        for place in places:
            self.leave(place, "later")
            if after_s is not None and not self.policy.breaker:
                self._not_before_s[place] = self._world.now_s + after_s
        self._begin_again(places)

    def _begin_again(self, places: Sequence[Place]) -> None:
        # Several of a lane were in one call: the first of them comes next.
        for place in places:
            for lane in self._backlog.lanes[place]:
                self._seen.discard((place[0], lane))

    def skip(self, place: Place) -> None:
        """The handler raises Skip."""
        self.leave(place, "skipped")
        self._skipped.add(place)

    def rejects(self, place: Place) -> None:
        """``split`` raises for the message of a sub-message."""
        self._moves += 1
        self._rejected.add(place)
        self.given_up[place] += 1

    def conclude(self, place: Place, outcome: Outcome) -> None:
        """The drain counts a sub-message as finished that the handler has not done."""
        ensure, policy = self._world.ensure, self.policy
        ensure(place not in self.running, f"{place} is {outcome}, and in the handler")
        spent = self._failed_now[place] > policy.retries
        action = policy.on_failure
        if place in self._rejected:
            spent, action = True, policy.on_unsplit
            barriers = (p for p in self._backlog.before[place] if not self._backlog.specs[p])
            ensure(all(p in self.known for p in barriers), f"{place} ended before a barrier")
        if outcome is Outcome.DEAD:
            ensure(action is OnFailure.DEAD_LETTER and spent, f"{place} is dead: why?")
            ensure(self.letters[place], f"{place} is dead before its letter is written")
        elif outcome is Outcome.FAILED:
            ensure(action is OnFailure.SKIP and spent, f"{place} has failed: why?")
        else:
            known = outcome is Outcome.SKIPPED and place in self._skipped
            ensure(known, f"{place} is {outcome.value}: why?")
        self._world.note(f"{outcome.value} {place}")
        self._finished(place, outcome)

    def rule_out(self, place: Place) -> None:
        """A rule takes it out when it is delivered."""
        self._world.ensure(place in self._backlog.ruled_out, f"{place} is skipped by which rule?")
        self._world.tally["ruled out"] += 1
        self._finished(place, Outcome.SKIPPED)

    def _finished(self, place: Place, outcome: Outcome) -> None:
        self._moves += 1
        self.known[place] = outcome
        self.finished_at_s[place] = self._world.now_s

    def _parks_behind(self, place: Place) -> bool:
        return (
            self.known[place] is Outcome.DEAD
            and self.policy.after_dead is AfterDead.PARK
            and place not in self.forgotten
        )

    def _check_lock(self, place: Place) -> None:
        sure = self._world.now_s <= self.sure_until_s() + INSTANT_S
        self._world.ensure(sure, f"{place} began while the lock was in doubt")

    def _count_starts(self, operations: int) -> None:
        if self.policy.rate is None or not self.exact:
            return
        now_s, rate = self._world.now_s, self.policy.rate
        most = max(1.0, rate * BURST_S)
        self._tokens = min(most, self._tokens + (now_s - self._tokens_at_s) * rate)
        self._tokens -= operations
        self._tokens_at_s = now_s
        self._world.ensure(
            self._tokens > -INSTANT_S * rate - 1e-6, "more starts than --rate allows"
        )

    def check_now(self, dispatcher: Dispatcher) -> None:
        """The laws that hold at every moment."""
        state = (self._moves, dispatcher.lanes.ready, dispatcher.lanes.running)
        if state == self._checked:
            return
        self._checked = state
        ensure = self._world.ensure
        messages, subs = dispatcher.counts()
        ensure(messages.conserved and subs.conserved, f"not conserved: {messages}, {subs}")
        ensure(
            not self.exact or subs.finished == len(self.known) - len(self.forgotten),
            f"{subs}, and {len(self.known)} are finished",
        )
        for ledger in dispatcher.ledgers.values():
            ensure(ledger.tally() == ledger.counts(), "what is pending is not what is counted")
        for number, watermark in dispatcher.watermarks.items():
            before = self._watermarks.get(number, watermark)
            ensure(watermark >= before, f"the watermark went back in partition {number}")
            self.check_below(number, before, watermark, self.known, "the watermark")
            self._watermarks[number] = watermark

    def check_below(
        self, number: int, start: int, end: int, finished: Mapping[Place, Outcome], what: str
    ) -> None:
        """Everything in these offsets is finished, or a hole."""
        for offset in range(start, end):
            for place in self._backlog.parts.get((number, offset), ()):
                self._world.ensure(place in finished, f"{what} passed {place}: {end}")

    def check_files(self, plan: OffsetPlan) -> dict[Place, Outcome]:
        """Sub-messages that are finished by plan and journal; all must be, and be counted."""
        ensure = self._world.ensure
        finished = finished_by(plan, self._backlog)
        for place in finished:
            ensure(place in self.known, f"{place} is finished in the files, and it is not")
        found = {place: self.known[place] for place in finished}
        messages, subs = plan.account.counts()
        ensure(messages.conserved and subs.conserved, f"not conserved: {messages}, {subs}")
        outcomes = Counter(o for place, o in found.items() if place not in self.forgotten)
        ensure(
            all(getattr(subs, each.value) == outcomes[each] for each in ENDS),
            f"the files count {subs}, and have {len(found)} finished",
        )
        ruled_out = sum(p in self._backlog.ruled_out for p in found if p not in self.forgotten)
        by_rules = plan.account.unhandled.skipped_by
        ensure(sum(by_rules.values()) == ruled_out, f"{by_rules}, and {ruled_out} are ruled out")
        counted = sum(is_finished(_all_of(plan, n), at) for n, at in self._backlog.parts)
        counted -= self.forgotten_messages
        ensure(messages.finished == counted, f"the files count {messages}, {counted} are finished")
        if not self.forgotten_messages:
            self._check_outcomes(plan, messages)
        return found

    def _check_outcomes(self, plan: OffsetPlan, messages: Counts) -> None:
        """A message ended as the worst of its parts, whichever process had them."""
        outcomes: Counter[Outcome] = Counter()
        for (number, offset), places in self._backlog.parts.items():
            if is_finished(_all_of(plan, number), offset):
                ends = [self.known[place] for place in places]
                outcomes[max(ends, key=ENDS.index, default=Outcome.DONE)] += 1
        found = {each: getattr(messages, each.value) for each in ENDS}
        self._world.ensure(
            all(found[each] == outcomes[each] for each in ENDS),
            f"the files count {messages}, and messages ended as {outcomes}",
        )

    def check_closed(self, kept: Mapping[Place, Outcome]) -> None:
        """With a sub-message, the files hold all that came before it in its lanes: else the next
        process would handle these after it."""
        for place in kept:
            unit = place in self._backlog.rejected and kept[place] is not Outcome.DONE
            for before in self._backlog.before[place]:
                if unit and self._backlog.specs[before]:
                    continue  # its lanes were unknown: it waits for barriers alone
                self._world.ensure(before in kept, f"the files hold {place} without {before}")

    def counted(self) -> set[Outcome]:
        """Outcomes of what the plan counts."""
        return {o for place, o in self.known.items() if place not in self.forgotten}

    def forget(self, committed: Mapping[int, int]) -> None:
        """The plan is lost; what is known without it lies below the group's offsets."""
        kept = {place: o for place, o in self.known.items() if place[1] < committed[place[0]]}
        self.end_life(kept)
        self.forgotten = set(kept)
        self.forgotten_messages = sum(at < committed[n] for n, at in self._backlog.parts)

    def end_pass(self) -> None:
        """All is finished that began, but for what is parked: the next pass tries that again."""
        self.end_life(self.known)

    def end_life(self, kept: Mapping[Place, Outcome]) -> None:
        """A process has ended; ``kept`` is what the next one will know."""
        self.repeats_allowed += len((self._begun_now.keys() | self.known.keys()) - kept.keys())
        self._begun_now.clear()
        self._failed_now.clear()
        self._not_before_s.clear()
        self._skipped.clear()
        self._rejected.clear()
        self._tokens = 1.0
        self.known = dict(kept)
        self.running.clear()
        self._calls.clear()
        self._busy.clear()
        self._seen.clear()
        self._watermarks.clear()

    def check_end(self, plan: OffsetPlan) -> None:
        """The drain ends with all done."""
        ensure, backlog = self._world.ensure, self._backlog
        to_do = set(backlog.specs) - backlog.ruled_out
        begun = set(self.begun)
        ensure(to_do - backlog.rejected <= begun <= to_do, "something was never handled")
        ensure(
            self.repeats <= self.repeats_allowed,
            f"{self.repeats} repeated, {self.repeats_allowed} would be right",
        )
        ensure(plan.account.complete, "done, and the plan is not complete")
        joined = (n for n in plan.account.partitions if n >= plan.terms.topic_partitions)
        lost = {n: ((0, first),) for n in joined if (first := backlog.starts[n])}
        ensure(plan.account.lost == lost, f"{plan.account.lost} is lost, not {lost}")
        finished = self.check_files(plan)
        ensure(set(finished) == set(backlog.specs), "done, and something is not finished")
        for place, outcome in finished.items():
            expected = self._expected(place)
            ensure(outcome in expected, f"{place} ended as {outcome}, not as {expected}")
            ensure(outcome is not Outcome.DEAD or self.letters[place], f"no letter of {place}")
        for place, letters in self.letters.items():
            ensure(letters <= self.given_up[place], f"{letters} letters of {place}")
        messages, subs = plan.account.counts()
        ensure((messages.pending, subs.pending) == (0, 0), "done, and something is pending")
        messages_read = len(backlog.parts) - self.forgotten_messages
        ensure(messages.read == messages_read, f"{messages.read} messages were read")
        subs_read = len(backlog.specs) - len(self.forgotten)
        ensure(subs.read == subs_read, f"{subs.read} sub-messages were read")

    def _expected(self, place: Place) -> set[Outcome]:
        """Outcomes that a sub-message may have."""
        if place in self._backlog.ruled_out:
            return {Outcome.SKIPPED}
        script = self._backlog.scripts.get(place, Script())
        expected = {Outcome.SKIPPED if script.then is Act.SKIP else Outcome.DONE}
        if place in self._backlog.rejected:
            expected |= _GIVEN_UP.get(self.policy.on_unsplit, set())
        if self.flaky or script.failures > self.policy.retries:
            if self.policy.on_failure is OnFailure.DEAD_LETTER:
                expected.add(Outcome.DEAD)
            elif self.policy.on_failure is OnFailure.SKIP:
                expected.add(Outcome.FAILED)
        return expected


_GIVEN_UP = {OnFailure.DEAD_LETTER: {Outcome.DEAD}, OnFailure.SKIP: {Outcome.FAILED}}


def _unsplit(progress: Progress) -> Sequence[Range]:
    return progress.outcomes.get(Outcome.UNSPLIT, ())


def _all_of(plan: OffsetPlan, number: int) -> Progress:
    """The progress of the claim "all" in a partition, which may have joined the topic later."""
    return plan.account.claims[ALL].get(number, Progress(0))


def finished_by(plan: OffsetPlan, backlog: Backlog) -> list[Place]:
    """Sub-messages that are finished by a plan, read naively."""
    return [
        place
        for (number, offset), places in backlog.parts.items()
        if number in plan.account.partitions
        for place in places
        if any(
            place[2] in finished_subs(claim[number], offset, len(places))
            and (
                (where := class_of(selector)) is None
                or backlog.is_in(where, place)
                or any(at <= offset < end for at, end in _unsplit(claim[number]))
            )
            for selector, claim in plan.account.claims.items()
        )
    ]
