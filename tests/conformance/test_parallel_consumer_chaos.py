"""The chaos of Parallel Consumer's fork, with its two ledgers, which are sabotaged first.

Source: astubbs/parallel-consumer 0.6 (``bz.stub.parallelconsumer``), ``chaostests``:
``KeyOrderLedger`` and ``KeyOrderLedgerIT``, ``ProgressProbe`` and ``ProgressProbeLedgerIT``,
``ChaosConductor`` and ``ChaosKeyOrderIT``,
https://github.com/astubbs/parallel-consumer/tree/master/parallel-consumer-core/src/test-integration

A conductor stops and restarts consumers by a seeded schedule while some calls take very long. At
the end two ledgers have to balance:

- nothing is lost, and what is handled twice is bounded: by what one disturbance may leave
  unrecorded, times the disturbances, and by half of everything however many there were;
- within one life of a consumer, one partition and one key, deliveries come in rising order and
  never overlap. What comes again in another life is no breach. A history in which no key comes
  twice in a window proves nothing, and is reported as vacuous.

While work remains, progress is made within 30 seconds, and an orderly stop ends within a bound.

"A bound that cannot fire is decoration", it says of its own: each is shown to fire on histories
that are made up, and to be silent on lawful repeats. Its consumers share a group and rebalance, and
drainer has one process at a time: its disturbances are stops, cut calls and kills, and a life is
one process. A consumer that is revoked amid its work has no counterpart.
"""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from command.process import Command
from conformance.history import Call, History, calls_of, produced_as, produced_in
from core.messages import Place
from drainer.message import SubMessage
from engine.made_up_kafka import UNHURRIED, OnTheLoop, VirtualDrains, log_of

pytestmark = pytest.mark.long

NO_PROGRESS_S = 30.0
LOSS, DUPLICATES = "loss", "duplicates"
ORDER, CONCURRENCY, VACUOUS = "order", "concurrency", "vacuous"


def key_order_problems(calls: Iterable[Call]) -> list[str]:
    windows: dict[tuple[int, int, str], list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.begun):
        windows[call.run, call.place[0], call.key].append(call)
    found = set()
    for window in windows.values():
        highest, busy_until = window[0].place, _end(window[0])
        for call in window[1:]:
            if call.place < highest:
                found.add(ORDER)
            if call.begun < busy_until:
                found.add(CONCURRENCY)
            highest, busy_until = max(highest, call.place), max(busy_until, _end(call))
    if all(len(window) == 1 for window in windows.values()):
        found.add(VACUOUS)
    return sorted(found)


def _end(call: Call) -> float:
    """Where it was in flight to the end of its life, no other of its window may have begun."""
    return float("inf") if call.ended is None else call.ended


def ledger_problems(
    expected: Set[Place], done: Sequence[Place], disturbances: int, allowance: int
) -> list[str]:
    found = []
    if expected - set(done):
        found.append(LOSS)
    if len(done) - len(set(done)) > min(disturbances * allowance, len(expected) // 2):
        found.append(DUPLICATES)
    return found


# --- the ledgers, on histories that are made up ---


def sequence(run: int, *offsets: int, key: str = "k", at: int = 1) -> list[Call]:
    """Deliveries of one window, one after the other."""
    return [
        Call(run, key, (0, offset, 0), 1, at + 2 * n, at + 2 * n + 1)
        for n, offset in enumerate(offsets)
    ]


def two(first: Call, **second: int | None) -> list[Call]:
    """A delivery of offset 10, and one of offset 11 in the same window."""
    return [first, replace(first, place=(0, 11, 0), **second)]  # type: ignore[arg-type]


WEDGED = Call(1, "k", (0, 10, 0), 1, begun=1)


@pytest.mark.parametrize(
    ("calls", "problems"),
    [
        pytest.param(sequence(1, 10, 11, 12), [], id="in-order"),
        pytest.param(sequence(1, 10, 12, 11), [ORDER], id="out-of-order"),
        pytest.param(sequence(1, 10, 12, 11)[::-1], [ORDER], id="noted-out-of-turn"),
        pytest.param(two(replace(WEDGED, ended=4), begun=2, ended=3), [CONCURRENCY], id="overlap"),
        pytest.param(two(WEDGED, begun=2, ended=3), [CONCURRENCY], id="one-is-wedged"),
        pytest.param(
            [*two(replace(WEDGED, ended=10), begun=2), *sequence(1, 12, at=4)],
            [CONCURRENCY],
            id="a-known-end-outlasts-a-wedged-one",
        ),
        pytest.param(
            [*sequence(1, 10, 11, 12), *sequence(2, 10, 11, 12, at=7)], [], id="another-life"
        ),
        pytest.param(
            [*sequence(1, 9), replace(WEDGED, begun=3), *sequence(2, 10, 11, at=5)],
            [],
            id="in-flight-when-it-was-killed",
        ),
        pytest.param(
            [
                *sequence(1, 10, 11),
                *[replace(call, place=(7, *call.place[1:])) for call in sequence(1, 5, 6, at=5)],
            ],
            [],
            id="another-partition",
        ),
        pytest.param(
            [*sequence(1, 40, 41, at=1), *sequence(1, 5, 6, key="other", at=2)],
            [],
            id="another-key",
        ),
        pytest.param(sequence(1, 10, 10, 11), [], id="the-same-twice"),
        pytest.param(
            [call for n in range(3) for call in sequence(1, n, key=f"k{n}", at=2 * n)],
            [VACUOUS],
            id="a-key-for-each",
        ),
        pytest.param([], [VACUOUS], id="nothing"),
    ],
)
def test_the_order_ledger_fires_on_breaches_and_on_nothing_else(
    calls: list[Call], problems: list[str]
) -> None:
    assert key_order_problems(calls) == problems


def at(*offsets: int) -> list[Place]:
    return [(0, offset, 0) for offset in offsets]


@pytest.mark.parametrize(
    ("count", "done", "disturbances", "allowance", "problems"),
    [
        pytest.param(3, at(0, 1), 1, 10, [LOSS], id="loss"),
        pytest.param(3, at(0, 1, 2), 3, 10, [], id="balanced"),
        pytest.param(2, at(0, 0, 1), 1, 1, [], id="at-the-allowance"),
        pytest.param(2, at(0, 0, 1, 1), 1, 1, [DUPLICATES], id="over-the-allowance"),
        pytest.param(10, at(*range(10), *range(6)), 100, 5_000, [DUPLICATES], id="over-half"),
    ],
)
def test_the_ledger_of_losses_and_duplicates_fires_at_its_bounds(
    count: int, done: list[Place], disturbances: int, allowance: int, problems: list[str]
) -> None:
    assert ledger_problems(set(at(*range(count))), done, disturbances, allowance) == problems


# --- the conductor ---

STOP, CUT = "stop", "cut"
SIGNALS = {STOP: 1, CUT: 2}  # of which the second cuts the calls in flight


@dataclass(frozen=True)
class Tick:
    """What the conductor does next, and after how many calls. ``tick_of`` draws it."""

    action: str
    after: int


def tick_of(seed: int, number: int) -> Tick:
    """Draw a tick by its seed and number alone, so that a schedule is the same when it is replayed,
    whatever the drains do.
    """
    chance = random.Random(f"{seed}/{number}")
    return Tick(chance.choice([*SIGNALS]), chance.randrange(5, 60))


def test_a_schedule_is_a_function_of_its_seed() -> None:
    plans = [[tick_of(seed, number) for number in range(500)] for seed in (1, 2, 1)]
    assert plans[0] == plans[2] != plans[1]
    assert {tick.action for tick in plans[0]} == SIGNALS.keys()


# --- drains that it disturbs, in virtual time ---

PARTITIONS, KEYS, MESSAGES, TICKS = 3, 15, 120, 8
HEAVY_EVERY, HEAVY_S, LIGHT_S, GRACE_S = 30, 3.0, 0.02, 10.0
AT_ONCE = 8


class Chaos:
    """A drain that the conductor stops and restarts, with a heavy tail of calls."""

    def __init__(self, virtual: VirtualDrains, seed: int) -> None:
        self._virtual, self._seed = virtual, seed
        chance = random.Random(seed)
        logs = {
            number: log_of(*([f"k{chance.randrange(KEYS)}"] for _ in range(MESSAGES)))
            for number in range(PARTITIONS)
        }
        self.expected = {p for places in produced_in(logs).values() for p in places}
        self.history = History()
        self.disturbances = Counter[str]()
        self.done_s = [virtual.world.now_s]
        self.stops_s: list[float] = []
        self._rehearsal = virtual.rehearsal(
            logs, replace(UNHURRIED, concurrency=AT_ONCE, grace_s=GRACE_S, plan_interval_s=0.5)
        )

    def run(self) -> None:
        for number in range(TICKS):
            if self._drain(tick_of(self._seed, number)) == 0:
                break
        else:
            assert self._drain(None) == 0
        ends = dict.fromkeys(range(PARTITIONS), MESSAGES)
        assert self._rehearsal.group.committed == ends

    def _drain(self, tick: Tick | None) -> int:
        begun = len(self.history.calls)
        stopped_s: float | None = None

        def step(sub: SubMessage) -> float:
            nonlocal stopped_s
            now_s = self._virtual.world.now_s
            self.done_s.append(now_s)  # The call before it in its lane is done.
            calls = len(self.history.calls) - begun
            if tick is not None and stopped_s is None and calls >= tick.after:
                stopped_s = now_s
                self.disturbances[tick.action] += 1
                for _ in range(SIGNALS[tick.action]):
                    self._virtual.signal("SIGTERM")
            return HEAVY_S if sub.message.offset % HEAVY_EVERY == HEAVY_EVERY - 1 else LIGHT_S

        handler = self.history.handler(self._virtual, OnTheLoop, step)
        code = self._rehearsal.drain(handler).exit_code
        if tick is not None and stopped_s is not None and tick.action == STOP:
            self.stops_s.append(self._virtual.world.now_s - stopped_s)
        return code

    def problems(self, calls: list[Call]) -> list[str]:
        done = [call.place for call in calls if call.done]
        return [
            *key_order_problems(calls),
            *ledger_problems(self.expected, done, self.disturbances[CUT], AT_ONCE),
        ]


@pytest.mark.parametrize("number", range(2))
def test_both_ledgers_balance_and_progress_is_made_whatever_the_conductor_does(
    number: int, virtual: VirtualDrains
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chaos = Chaos(virtual, seed)
    chaos.run()
    assert chaos.problems(chaos.history.calls) == []
    assert max(now - before for before, now in pairwise(chaos.done_s)) < NO_PROGRESS_S
    assert max(chaos.stops_s, default=0) < GRACE_S + 1


def of_one_seed(folder: Path) -> Chaos:
    chaos = Chaos(VirtualDrains(folder), 424242)
    chaos.run()
    return chaos


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return of_one_seed(tmp_path_factory.mktemp("chaos"))


def test_the_same_seed_makes_the_same_history(chaos: Chaos, tmp_path: Path) -> None:
    assert chaos.disturbances.keys() == {STOP, CUT}
    assert of_one_seed(tmp_path).history.calls == chaos.history.calls


# --- sabotage of a history that was made ---


def drop_one(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.place != calls[50].place]


def swap_two(calls: list[Call]) -> list[Call]:
    first = calls[0]
    second = next(c for c in calls[1:] if (c.key, c.place[0]) == (first.key, first.place[0]))
    other = {first.place: second.place, second.place: first.place}
    return [replace(call, place=other.get(call.place, call.place)) for call in calls]


def let_one_overlap(calls: list[Call]) -> list[Call]:
    first = calls[0]
    second = next(c for c in calls[1:] if (c.key, c.place[0]) == (first.key, first.place[0]))
    return [replace(first, ended=second.begun + 1), *calls[1:]]


def handle_many_again(calls: list[Call]) -> list[Call]:
    end = max(call.ended or 0 for call in calls)
    lives = max(call.run for call in calls)
    return [
        *calls,
        *(
            replace(call, run=lives + 1, begun=end + 2 * n, ended=end + 2 * n + 1)
            for n, call in enumerate(calls[: AT_ONCE * TICKS])
        ),
    ]


def give_each_its_key(calls: list[Call]) -> list[Call]:
    return [replace(call, key=f"k{n}") for n, call in enumerate(calls)]


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        (drop_one, LOSS),
        (swap_two, ORDER),
        (let_one_overlap, CONCURRENCY),
        (handle_many_again, DUPLICATES),
        (give_each_its_key, VACUOUS),
    ],
)
def test_a_history_that_was_sabotaged_does_not_balance(
    sabotage: Callable[[list[Call]], list[Call]], problem: str, chaos: Chaos
) -> None:
    assert chaos.problems(chaos.history.calls) == []
    assert problem in chaos.problems(sabotage(chaos.history.calls))


# --- the command ---

BACKLOG, CONCURRENT, DISTURBANCES = 800, 16, 6  # messages in each partition
UNRECORDED = 2 * CONCURRENT + 150  # what was in flight, and what ended in the last 150 ms


def test_both_ledgers_balance_when_the_command_is_stopped_cut_and_killed(command: Command) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    values = [f'["k{chance.randrange(KEYS * 10)}"]' for _ in range(BACKLOG)]
    topic = command.topic(values, partitions=PARTITIONS)
    more = ("-c", str(CONCURRENT))
    running = command.begin(topic, *more, pause_ms=10)
    for number in range(DISTURBANCES):
        tasks = PARTITIONS * BACKLOG
        command.wait_for(running, "done", int(tasks * (number + chance.random() / 2) / 8))
        match chance.choice(["stop", "cut", "kill"]):
            case "stop":
                running.signal(signal.SIGTERM)
                running.ends(4)
            case "cut":
                running.signal(signal.SIGTERM)
                running.signal(signal.SIGINT)
                running.ends(4)
            case "kill":
                running.kill()
        words = command.resume_of(command.plan(topic))
        running = command.start(*words, *more, *command.options(pause_ms=10))
    running.ends(0)

    calls = calls_of(command.record.lines())
    produced = produced_as({(p, n): v for p in range(PARTITIONS) for n, v in enumerate(values)})
    expected = {place for places in produced.values() for place in places}
    done = [call.place for call in calls if call.done]
    assert key_order_problems(calls) == []
    assert ledger_problems(expected, done, DISTURBANCES, UNRECORDED) == []
    assert command.committed(topic) == dict.fromkeys(range(PARTITIONS), BACKLOG)
