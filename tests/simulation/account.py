"""The laws: what was handled, in which order and how often, against what files and group say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from drainer.core.dispatch import Dispatcher
from drainer.core.plan import ALL, OffsetPlan
from drainer.core.progress import Outcome
from drainer.message import SubMessage
from simulation.backlog import Backlog, Place
from simulation.world import World

INSTANT_S = 1e-6  # sums of floats differ by less


def place_of(sub: SubMessage) -> Place:
    return sub.message.partition, sub.message.offset, sub.index


class Account:
    """What really happened, over all lives of a drain.

    ``known`` is what is finished as far as this life can know: what the files said when it began,
    and what finished since.
    """

    def __init__(self, world: World, backlog: Backlog) -> None:
        self._world = world
        self._backlog = backlog
        self.known: dict[Place, Outcome] = {}
        self.finished_at_s: dict[Place, float] = {}
        self.running: dict[Place, float] = {}  # since when
        self.begun: Counter[Place] = Counter()
        self.attempts: Counter[Place] = Counter()
        self.repeats = 0
        self.repeats_allowed = 0
        self.concurrency = 0
        self.exact = True  # what comes out of the handler is accounted for at once
        self._busy: Counter[Hashable] = Counter()  # lanes with something in the handler
        self._last: dict[tuple[int, Hashable], Place] = {}
        self._seen: set[tuple[int, Hashable]] = set()  # lanes that this life has begun
        self._watermarks: dict[int, int] = {}
        self._begun_now: set[Place] = set()  # in this life
        self._moves = 0  # into the handler and out of it
        self._checked = (-1, 0, 0)

    def begin(self, sub: SubMessage) -> Place:
        """The handler is given a sub-message."""
        place = place_of(sub)
        backlog, insist = self._backlog, self._world.insist
        self._world.step(f"handle {place}")
        self._moves += 1
        insist(place in backlog.specs, f"{place} is not of the backlog")
        insist(place not in self.known, f"{place} is finished, and handled again in one life")
        insist(place not in self.running, f"{place} is in the handler already")
        for before in backlog.before[place]:
            insist(before in self.known, f"{place} began before {before} had finished")
        lanes = backlog.lanes[place]
        for lane in lanes:
            insist(not self._busy[lane], f"{place} and another are at once in lane {lane!r}")
            at = (place[0], lane)
            if at in self._seen:
                insist(self._last[at] < place, f"lane {at} went back within one life")
            self._seen.add(at)
            self._last[at] = place
        for other in self.running:
            alone = not backlog.specs[place] or not backlog.specs[other]
            insist(not alone or other[0] != place[0], f"{place} and {other}: a barrier is alone")
        self._busy.update(lanes)
        self.running[place] = self._world.now_s
        insist(len(self.running) <= self.concurrency, "more at once than --concurrency")
        self.repeats += place in self.begun
        self.begun[place] += 1
        self._begun_now.add(place)
        self.attempts[place] += 1
        return place

    def leave(self, place: Place, what: str) -> None:
        """It comes out of the handler unfinished."""
        self._world.step(f"{what} {place}")
        self._moves += 1
        del self.running[place]
        self._busy.subtract(self._backlog.lanes[place])

    def finish(self, place: Place, outcome: Outcome = Outcome.DONE) -> None:
        self.leave(place, "done")
        self.known[place] = outcome
        self.finished_at_s[place] = self._world.now_s

    def check_now(self, dispatcher: Dispatcher) -> None:
        """The laws that hold at every moment."""
        state = (self._moves, dispatcher.lanes.ready, dispatcher.lanes.running)
        if state == self._checked:
            return
        self._checked = state
        insist = self._world.insist
        messages, subs = dispatcher.counts()
        insist(messages.conserved and subs.conserved, f"not conserved: {messages}, {subs}")
        insist(
            not self.exact or subs.finished == len(self.known),
            f"{subs}, and {len(self.known)} are finished",
        )
        for number, ledger in dispatcher.ledgers.items():
            insist(ledger.tally() == ledger.counts(), "what is pending is not what is counted")
            before = self._watermarks.get(number, ledger.watermark)
            insist(ledger.watermark >= before, f"the watermark went back in partition {number}")
            self.check_below(number, before, ledger.watermark, self.known, "the watermark")
            self._watermarks[number] = ledger.watermark

    def check_below(
        self, number: int, start: int, end: int, finished: Mapping[Place, Outcome], what: str
    ) -> None:
        """Everything in these offsets is finished, or a hole."""
        for offset in range(start, end):
            for place in self._backlog.parts.get((number, offset), ()):
                self._world.insist(place in finished, f"{what} passed {place}: {end}")

    def check_files(self, plan: OffsetPlan) -> dict[Place, Outcome]:
        """What plan and journal say is finished; all of it must be, and be counted."""
        insist = self._world.insist
        finished = finished_by(plan, self._backlog)
        for place in finished:
            insist(place in self.known, f"the files say that {place} is finished, and it is not")
        found = {place: self.known[place] for place in finished}
        messages, subs = plan.counts()
        insist(messages.conserved and subs.conserved, f"not conserved: {messages}, {subs}")
        outcomes = Counter(found.values())
        insist(
            (subs.done, subs.dead, subs.skipped) == tuple(outcomes[each] for each in Outcome),
            f"the files count {subs}, and say that {len(found)} are finished",
        )
        counted = sum(
            offset < plan.claims[ALL][number].watermark or _in_range(plan, number, offset)
            for number, offset in self._backlog.parts
        )
        insist(messages.finished == counted, f"the files count {messages}, {counted} are finished")
        return found

    def check_closed(self, kept: Mapping[Place, Outcome]) -> None:
        """With a sub-message, the files hold all that came before it in its lanes: else the next
        process would handle these after it."""
        for place in kept:
            for before in self._backlog.before[place]:
                self._world.insist(before in kept, f"the files hold {place} without {before}")

    def end_life(self, kept: Mapping[Place, Outcome]) -> None:
        """A process has ended; ``kept`` is what the next one will know."""
        self.repeats_allowed += len((self._begun_now | self.known.keys()) - kept.keys())
        self._begun_now.clear()
        self.known = dict(kept)
        self.running.clear()
        self._busy.clear()
        self._seen.clear()
        self._watermarks.clear()

    def check_end(self, plan: OffsetPlan) -> None:
        """The drain says that all is done."""
        insist, backlog = self._world.insist, self._backlog
        insist(set(self.begun) == set(backlog.specs), "something was never handled")
        insist(
            self.repeats <= self.repeats_allowed,
            f"{self.repeats} repeated, {self.repeats_allowed} would be right",
        )
        insist(plan.complete, "done, and the plan is not complete")
        finished = self.check_files(plan)
        insist(set(finished) == set(backlog.specs), "done, and something is not finished")
        for place, outcome in finished.items():
            expected = backlog.scripts[place].outcome if place in backlog.scripts else Outcome.DONE
            insist(outcome is expected, f"{place} ended as {outcome}, not as {expected}")
        messages, subs = plan.counts()
        insist((messages.pending, subs.pending) == (0, 0), "done, and something is pending")
        insist(messages.read == len(backlog.parts), f"{messages.read} messages were read")
        insist(subs.read == len(backlog.specs), f"{subs.read} sub-messages were read")


def finished_by(plan: OffsetPlan, backlog: Backlog) -> list[Place]:
    """The sub-messages that a plan says are finished, read naively."""
    found = []
    for place in backlog.specs:
        partition, offset, index = place
        progress = plan.claims[ALL][partition]
        part = progress.partial.get(offset)
        if (
            offset < progress.watermark
            or _in_range(plan, partition, offset)
            or (part is not None and part.bits >> index & 1)
        ):
            found.append(place)
    return found


def _in_range(plan: OffsetPlan, partition: int, offset: int) -> bool:
    return any(first <= offset < end for first, end in plan.claims[ALL][partition].finished)
