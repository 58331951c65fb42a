"""World of a simulation: virtual time, chance from one seed, and the steps at which the
simulated process may end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import NoReturn

LAST_KEPT = 50  # of what happened last, when a law is broken
STEPS_MOST = 1_000_000  # a drain that takes more goes round in circles: an outage takes ten minutes
EPOCH_S = 1_767_225_600.0  # 2026-01-01, where the wall clock begins


class Killed(BaseException):
    """The simulated process is gone; whatever it had in memory is, too."""


@dataclass
class Death:
    """When the process dies: at the ``left``-th step from now of those that begin with ``at``."""

    at: str
    left: int


class World:
    """Time and chance of one seed.

    A *step* is anything that others can see: a write, a question to the cluster, a handler that
    begins or ends, a turn of the event loop. The process can die at each of them. Code under test
    may swallow the exception that ends it, so a dead process is refused each further step.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.alive = True
        self.breach: str | None = None  # the first law that was broken
        self.fate: Death | None = None
        self.steps = 0
        self.tally: Counter[str] = Counter()
        self.longest_turn_s = 0.0  # of the event loop, in this life
        self.each_turn: Callable[[], None] = lambda: None
        self._turn_began_s = 0.0
        self._last: deque[str] = deque(maxlen=LAST_KEPT)
        self._digest = blake2b(digest_size=12)

    def random(self, name: str) -> Random:
        """Chance for one purpose: a new one does not change what the others draw."""
        return Random(f"{self.seed}/{name}")

    def monotonic(self) -> float:
        return self.now_s

    def step(self, what: str, half_way: Callable[[], object] | None = None) -> None:
        """Something that can be seen is about to happen. Raises Killed when it never will.

        ``half_way`` does a part of it, when the process dies in the middle.
        """
        if not self.alive:
            raise Killed
        self.steps += 1
        self.ensure(self.steps < STEPS_MOST, "it does not end")
        if what != "turn":
            self.note(what)
        fate = self.fate
        if fate is not None and what.startswith(fate.at):
            fate.left -= 1
            if fate.left <= 0:
                if half_way is not None:
                    half_way()
                self.die()

    def turn(self) -> None:
        """The event loop goes round."""
        self.longest_turn_s = max(self.longest_turn_s, self.now_s - self._turn_began_s)
        self.step("turn")
        self.each_turn()

    def wait(self, seconds: float) -> None:
        """The event loop has nothing to do."""
        self.now_s += seconds
        self._turn_began_s = self.now_s

    def die(self) -> NoReturn:
        self.alive = False
        self.longest_turn_s = max(self.longest_turn_s, self.now_s - self._turn_began_s)
        self.note("the process dies")
        raise Killed

    def revive(self) -> None:
        """The next process begins."""
        self.alive = True
        self.longest_turn_s = 0.0
        self._turn_began_s = self.now_s

    def ensure(self, kept: object, law: str) -> None:
        """Ends the simulation when a law does not hold, whoever swallows exceptions here."""
        if not kept:
            if self.alive and self.breach is None:
                self.breach = law
                self.note(f"BREACH: {law}")
            self.alive = False
            raise Killed

    def note(self, what: str) -> None:
        """Keeps a line of what happened, for whoever has to find out why."""
        line = f"{self.now_s:.6f} {what}"
        self._last.append(line)
        self._digest.update(line.encode())

    @property
    def trace(self) -> str:
        """A digest of all that happened."""
        return self._digest.hexdigest()

    @property
    def story(self) -> str:
        return "\n".join(self._last)
