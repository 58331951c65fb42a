"""Decaton's three guarantees, on drains that are stopped, killed and resumed, and with retries.

Source: line/decaton, ``ProcessingGuarantee.java`` with ``AtLeastOnceDelivery``, ``ProcessOrdering``
and ``SerialProcessing``, and the suite that asserts them (``ProcessorTestSuite``,
``CoreFunctionalityTest``, ``RetryQueueingTest``),
https://github.com/line/decaton/tree/master/testing/src/main/java/com/linecorp/decaton/testing/processor

Its suite restarts all subscriptions when half of the tasks are processed, and asserts at the end:

- at-least-once delivery: what was produced and what was processed are the same set;
- process ordering: tasks of a key are processed as produced. After a restart earlier ones may be
  processed again, but whatever comes behind one that is repeated is repeated too, and what is known
  to be committed, because a repeat began behind it, never comes again;
- serial processing: tasks of a key never overlap.

Decaton promises these for the key of a record, and drainer for the sub-key of a sub-message. With
retries Decaton promises only the first, because it sends a failed task to another topic. In drainer
a failed sub-message keeps its place in its lane, so all three are checked in the same way there. A
failed attempt is no processing in the sense of the first, but it is one for the others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from command.process import ON_THE_LOOP, ON_THREADS, Command
from conformance.history import Call, History, Produced, Window, calls_of, produced_as, produced_in
from core.messages import Place
from drainer.handler import Retry
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings
from drainer.model.status import Summary
from engine.made_up_kafka import UNHURRIED, Kind, OnTheLoop, VirtualDrains, both_kinds, log_of

PARTITIONS, KEYS = 3, 10
TASKS = 60  # in each partition
QUICK = FailureSettings(retries=2, retry_delay_s=0.01, retry_max_delay_s=0.01, timeout_s=0.05)
CONCURRENCY = 16  # as in testProcessConcurrent


def ensure_at_least_once(produced: Produced, calls: Iterable[Call]) -> None:
    processed = {call.place for call in calls if call.done}
    missing = {place for places in produced.values() for place in places} ^ processed
    assert not missing, f"produced or processed, and not both: {sorted(missing)}"


def ensure_process_ordering(produced: Produced, calls: Iterable[Call]) -> None:
    processed: dict[Window, list[Place]] = defaultdict(list)
    for call in calls:
        if call.ended is not None:
            processed[call.place[0], call.key].append(call.place)
    for window, places in produced.items():
        ensure_ordered(places, processed[window])


def ensure_ordered(produced: Sequence[Place], processed: Sequence[Place]) -> None:
    """Ensure the order of one key. What was repeated first is committed, with all before it."""
    numbers = [produced.index(place) for place in processed]
    assert numbers[:1] == [0], f"the first of {produced[:1]} was {processed[:1]}"
    committed = 0
    for before, now in pairwise(numbers):
        assert now <= before + 1, f"{produced[now]} was processed before {produced[before + 1]}"
        if now <= before:
            assert now >= committed, f"{produced[now]} was committed, and processed again"
            committed = now
    assert numbers[-1] == len(produced) - 1, f"{produced[-1]} was not processed again"


def ensure_serial(calls: Iterable[Call]) -> None:
    """Ensure that calls of a key don't overlap. A killed process takes its calls with it."""
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    for of_key in by_key.values():
        for before, now in pairwise(sorted(of_key, key=lambda call: call.begun)):
            over = before.run != now.run if before.ended is None else before.ended < now.begun
            assert over, f"{now} began before {before} had ended"


def ensure_all_three(produced: Produced, calls: Sequence[Call]) -> None:
    ensure_at_least_once(produced, calls)
    ensure_process_ordering(produced, calls)
    ensure_serial(calls)


# --- the guarantees, by Decaton's own examples ---


def at(*offsets: int) -> list[Place]:
    return [(0, offset, 0) for offset in offsets]


@pytest.mark.parametrize("offsets", [[1, 2, 3, 4, 5], [1, 2, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 5]])
def test_an_order_that_decaton_calls_valid_is(offsets: list[int]) -> None:
    ensure_ordered(at(1, 2, 3, 4, 5), at(*offsets))


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param([1, 3, 2, 4, 5], id="gap"),
        pytest.param([1, 2, 3, 4, 5, 4, 3], id="regresses-below-the-committed"),
        pytest.param([1, 2, 3, 4, 5, 4], id="not-repeated-to-the-end"),
        pytest.param([2, 3, 4, 5], id="lost"),
    ],
)
def test_an_order_that_decaton_calls_invalid_is(offsets: list[int]) -> None:
    with pytest.raises(AssertionError):
        ensure_ordered(at(1, 2, 3, 4, 5), at(*offsets))


# --- drains that are restarted, in virtual time ---

Step = Callable[[SubMessage, random.Random], float]


def takes_a_while(sub: SubMessage, chance: random.Random) -> float:
    """``testProcessConcurrent``, ``testAsyncTaskCompletion``: a random delay."""
    return chance.randrange(10) / 1000


def retries_once(sub: SubMessage, chance: random.Random) -> float:
    """``testRetryQueuing``: each task is retried once."""
    if sub.attempt == 1:
        raise Retry("as each does once", after=0.01)
    return takes_a_while(sub, chance)


def fails_once(sub: SubMessage, chance: random.Random) -> float:
    """The same, by an exception."""
    if sub.attempt == 1:
        raise ValueError("as each does once")
    return takes_a_while(sub, chance)


def hangs_at_times(sub: SubMessage, chance: random.Random) -> float:
    """``testAsyncCompletionWithLeakAndTimeout``: a quarter never completes, and times out."""
    return 1e6 if sub.attempt == 1 and chance.random() < 0.25 else takes_a_while(sub, chance)


class Suite:
    """Decaton's suite: tasks of some keys, and restarts when half of them are processed."""

    def __init__(self, virtual: VirtualDrains, kind: Kind, step: Step, seed: int) -> None:
        print(f"seed {seed}")
        self._virtual, self._kind, self._step = virtual, kind, step
        self._chance = chance = random.Random(seed)
        self.history = History()
        logs = {
            number: log_of(
                *(
                    [f"k{chance.randrange(KEYS)}" for _ in range(chance.randint(0, 3))]
                    for _ in range(TASKS)
                )
            )
            for number in range(PARTITIONS)
        }
        self.produced = produced_in(logs)
        self.tasks = sum(map(len, self.produced.values()))
        self.rehearsal = virtual.rehearsal(logs, replace(UNHURRIED, concurrency=CONCURRENCY))
        self.rehearsal.failures = QUICK

    def run(self, signals: int, stops: int = 3) -> list[Call]:
        """Stop the drain by so many signals at once, as often, and then let it end."""
        half = self.tasks // 2
        at = sorted(self._chance.sample(range(half // 2, half), stops)) if stops else []
        for most in at:
            summary = self._drain(signals, most)
            assert summary.exit_code == 4, summary.error
        summary = self._drain(0, 0)
        assert summary.exit_code == 0, summary.error
        committed = {number: log.end for number, log in self.rehearsal.logs.items()}
        assert self.rehearsal.group.committed == committed
        return self.history.calls

    def _drain(self, signals: int, most: int) -> Summary:
        stopped = False

        def step(sub: SubMessage) -> float:
            nonlocal stopped
            if signals and not stopped and sum(call.done for call in self.history.calls) >= most:
                stopped = True
                for _ in range(signals):
                    self._virtual.signal("SIGTERM")
            return self._step(sub, self._chance)

        handler = self.history.handler(self._virtual, self._kind, step)
        return self.rehearsal.drain(handler)


@pytest.mark.parametrize("step", [takes_a_while, retries_once, fails_once])
@both_kinds
def test_all_three_hold_over_stops_and_resumes(
    kind: Kind, step: Step, virtual: VirtualDrains
) -> None:
    suite = Suite(virtual, kind, step, random.randrange(2**32))
    ensure_all_three(suite.produced, suite.run(signals=1))


@pytest.mark.parametrize("step", [takes_a_while, retries_once, fails_once, hangs_at_times])
def test_all_three_hold_when_calls_in_flight_are_cut(step: Step, virtual: VirtualDrains) -> None:
    suite = Suite(virtual, OnTheLoop, step, random.randrange(2**32))
    ensure_all_three(suite.produced, suite.run(signals=2))


@pytest.mark.parametrize("step", [retries_once, fails_once, hangs_at_times])
def test_whatever_is_retried_is_processed_by_a_retry(step: Step, virtual: VirtualDrains) -> None:
    """``ProcessRetriedTask``: all tasks are processed with a count of retries above zero."""
    suite = Suite(virtual, OnTheLoop, step, random.randrange(2**32))
    calls = suite.run(signals=0, stops=0)
    failed = {call.place for call in calls if call.failed}
    assert {(call.place, call.attempt) for call in calls if call.done and call.place in failed} == {
        (place, 2) for place in failed
    }
    assert len(failed) == suite.tasks or step is hangs_at_times
    assert failed


@both_kinds
def test_nothing_is_processed_twice_where_calls_may_end(kind: Kind, virtual: VirtualDrains) -> None:
    """``testSingleThreadProcessing`` finds no duplicates with one thread, which Decaton does not
    promise. drainer does, at any concurrency, as long as a stop may wait for the calls in flight.
    """
    suite = Suite(virtual, kind, takes_a_while, random.randrange(2**32))
    calls = suite.run(signals=1)
    assert suite.history.runs == 4
    assert len(calls) == suite.tasks


# --- sabotage: a history that is not as it was is found out ---


def dropped(calls: list[Call], chance: random.Random) -> list[Call]:
    """One is never processed."""
    lost = chance.choice(calls).place
    return [call for call in calls if call.place != lost]


def swapped(calls: list[Call], chance: random.Random) -> list[Call]:
    """Two of a key come in the wrong order."""
    pairs = [
        (c, other)
        for c in calls
        for other in calls
        if c.key == other.key and c.place[0] == other.place[0] and c.place < other.place
    ]
    first, second = chance.choice(pairs)
    other = {first.place: second.place, second.place: first.place}
    return [replace(call, place=other.get(call.place, call.place)) for call in calls]


def overlapping(calls: list[Call], chance: random.Random) -> list[Call]:
    """One goes on while the next of its key runs."""
    chosen = chance.choice([c for c in calls if any(_follows(c, other) for other in calls)])
    behind = next(other for other in calls if _follows(chosen, other))
    return [replace(c, ended=behind.begun + 1) if c is chosen else c for c in calls]


def committed_again(calls: list[Call], chance: random.Random) -> list[Call]:
    """One comes back behind a repeat of its successor."""
    of_key = [call for call in calls if call.key == calls[0].key and call.place[0] == 0]
    last, before = of_key[-1], of_key[-2]
    end = max(call.ended or 0 for call in calls)
    again = [replace(each, begun=end + 2 * n + 1, ended=end + 2 * n + 2)
             for n, each in enumerate((last, before, last))]  # fmt: skip
    return calls + again


def _follows(before: Call, after: Call) -> bool:
    return before.key == after.key and before.begun < after.begun


@pytest.mark.parametrize("sabotage", [dropped, swapped, overlapping, committed_again])
def test_a_history_that_breaks_a_guarantee_is_found_out(
    sabotage: Callable[[list[Call], random.Random], list[Call]], virtual: VirtualDrains
) -> None:
    seed = random.randrange(2**32)
    suite = Suite(virtual, OnTheLoop, takes_a_while, seed)
    calls = suite.run(signals=0, stops=0)
    ensure_all_three(suite.produced, calls)
    with pytest.raises(AssertionError):
        ensure_all_three(suite.produced, sabotage(calls, random.Random(seed)))


# --- the command, killed ---

KILLS, MANY_KEYS, MANY = 3, 100, 700  # messages in each partition, of three sub-messages


@pytest.mark.long
@pytest.mark.parametrize("handler", [ON_THE_LOOP, ON_THREADS])
def test_all_three_hold_over_kills_and_resumes(command: Command, handler: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    keys = [f'"k{chance.randrange(MANY_KEYS)}"' for _ in range(3 * MANY)]
    values = [f"[{', '.join(keys[n : n + 3])}]" for n in range(0, 3 * MANY, 3)]
    topic = command.topic(values, partitions=PARTITIONS)
    produced = produced_as({(p, n): v for p in range(PARTITIONS) for n, v in enumerate(values)})
    tasks = 3 * MANY * PARTITIONS
    more = ("-c", str(CONCURRENCY))
    running = command.begin(topic, *more, handler=handler, pause_ms=2)
    for kill in range(KILLS):
        command.wait_for(running, "done", int(tasks * (kill + chance.random() / 2) / KILLS))
        running.kill()
        words = command.resume_of(command.plan(topic))
        running = command.start(*words, *more, *command.options(pause_ms=2))
    running.ends(0)

    calls = calls_of(command.record.lines())
    assert len({call.run for call in calls}) == KILLS + 1
    ensure_all_three(produced, calls)
    assert command.committed(topic) == dict.fromkeys(range(PARTITIONS), MANY)
