"""The search for a schedule that ends in another state: found and made small by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from drainer.certify.schedule import SampleWork, Step
from drainer.certify.trial import Ended, HandlerTrial

Parts = tuple[Sequence[Step], ...]
Draw = Callable[[int, int], int]  # an int between two, both included; shrinks to the first

MESSAGES_DRAWN = 8  # of the sample, for one schedule
DRAWS = 100  # choices in one schedule; what comes after is in order
NARROWING_RUNS = 300


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look: drawn schedules of each kind, seconds for them, and the seed."""

    examples: int = 100
    seconds: float = 30.0
    seed: int = 0


NORMAL = Effort()


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A schedule that ends otherwise than the serial one of the same messages."""

    work: SampleWork
    parts: Parts
    serial: Ended
    ended: Ended


def narrowed(
    found: CounterExample, differs: Callable[[SampleWork], CounterExample | None]
) -> CounterExample:
    """The same with messages left out, more and more until each of the rest is needed."""
    left = NARROWING_RUNS
    size = max(1, len(found.work.chosen) // 2)
    while left:
        before = len(found.work.chosen)
        at = 0
        while at < len(found.work.chosen) and left:
            chosen = found.work.chosen
            rest = found.work.only(chosen[:at] + chosen[at + size :])
            left -= 1
            smaller = differs(rest) if rest.chosen else None
            if smaller is None:
                at += size
            else:
                found = smaller
        if size > 1:
            size //= 2
        elif len(found.work.chosen) == before:
            break
    return found


class _Differs(Exception):
    def __init__(self, example: CounterExample) -> None:
        super().__init__()
        self.example = example


class Search:
    """Tries the ``wide`` schedule of all messages, then schedules of a few that ``drawn`` makes.

    The wide one finds nearly everything at once, and says little about it: when it differs,
    messages are left out for as long as it still does, and the drawing goes on with those.
    """

    def __init__(
        self,
        trial: HandlerTrial,
        effort: Effort,
        wide: Callable[[SampleWork], Parts],
        drawn: Callable[[SampleWork, Draw], Parts],
    ) -> None:
        self._trial = trial
        self._effort = effort
        self._wide = wide
        self._drawn = drawn
        self._known: dict[tuple[int, ...], Ended] = {}
        self.tried = 0

    def find(self, work: SampleWork) -> CounterExample | None:
        """A small schedule that should end as the serial one does, and doesn't."""
        whole = self._try(work, self._wide(work))
        if whole is None:
            return self._draw(work, MESSAGES_DRAWN)
        whole = narrowed(whole, lambda part: self._try(part, self._wide(part)))
        return self._draw(whole.work, len(whole.work.chosen)) or whole

    def _draw(self, work: SampleWork, most: int) -> CounterExample | None:
        # Only now: a drain must not pay for the import.
        from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings  # noqa: PLC0415
        from hypothesis import strategies as st  # noqa: PLC0415
        from hypothesis.errors import Flaky  # noqa: PLC0415

        most = min(len(work.chosen), most)
        each = st.sampled_from(work.chosen)
        chosen = st.lists(each, min_size=1, max_size=most, unique=True)
        if most == len(work.chosen):  # which all of them would hardly ever be drawn for
            chosen |= st.just(list(work.chosen))
        until = monotonic() + self._effort.seconds
        found: CounterExample | None = None

        @seed(self._effort.seed)
        @settings(
            max_examples=self._effort.examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(st.data())
        def differs_nowhere(data: st.DataObject) -> None:
            nonlocal found
            if found is None and monotonic() > until:
                return
            left = DRAWS

            def draw(least: int, most: int) -> int:
                nonlocal left
                if left <= 0 or least == most:
                    return least
                left -= 1
                return data.draw(st.integers(least, most))

            part = work.only(data.draw(chosen))
            example = self._try(part, self._drawn(part, draw)) if part.specs else None
            if example is not None:
                found = example
                raise _Differs(example)

        try:
            differs_nowhere()
        except _Differs as differs:
            return differs.example
        except Flaky:  # it did not end twice in the same way; the last that differed is true
            return found
        return None

    def _try(self, work: SampleWork, parts: Parts) -> CounterExample | None:
        serial = self._known.get(work.chosen)
        if serial is None:
            serial = self._known[work.chosen] = self._trial.run(work.serial)
        if serial.raised is not None:  # it needs what was left out: that proves nothing
            return None
        self.tried += 1
        ended = self._trial.run(*parts)
        return None if ended.same(serial) else CounterExample(work, parts, serial, ended)
