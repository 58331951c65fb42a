"""Batches: what goes into one call, and that the laws of single sub-messages hold all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import counts
from drainer.core.batches import Batch, Batcher, Batching, BatchOf
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.errors import HandleFailed
from drainer.message import Barrier, SubMessage
from drainer.model.progress import Outcome

from .messages import message_at, one_partition, sub_of

Place = tuple[int, int]  # offset, index


def joined(earlier: SubMessage, later: SubMessage) -> SubMessage:
    """Both payloads, one after the other."""
    return SubMessage(later.key, [*earlier.payload, *later.payload])


def delivered(*keys: Hashable) -> Dispatcher:
    """A message for each key, whose payload is a list with its offset."""
    dispatcher = one_partition(len(keys))
    for offset, key in enumerate(keys):
        dispatcher.deliver(message_at(offset), [SubMessage(key, [offset])])
    return dispatcher


def places(subs: Sequence[SubMessage]) -> list[Place]:
    return [(sub.message.offset, sub.index) for sub in subs]


def taken(batcher: Batcher) -> Batch:
    batch = batcher.take()
    assert batch is not None
    return batch


def retry(dispatcher: Dispatcher, batcher: Batcher, batch: Batch) -> None:
    """Retry a failed call of several sub-messages as the engine does."""
    for lead in batcher.give_back(batch, split=True):
        dispatcher.delay(lead)
        dispatcher.release(lead)


def end_in_part(
    dispatcher: Dispatcher, batcher: Batcher, batch: Batch, bad: set[Place]
) -> set[Place]:
    """End a call as the engine does when it has results; gives what is to be handled again."""
    error = ValueError("bad")
    results = [error if bad.intersection(places(sub.folded)) else None for sub in batch.subs]
    done_before = {at for sub in batch.subs for at in places(sub.folded)}
    runs = [[lead, *followers] for lead, followers in batch.runs]
    again = set[Place]()
    for sub, _, _ in batcher.take_apart(batch, results):
        run = next(run for run in runs if sub in run)
        again |= set(places(run[run.index(sub) :]))
        dispatcher.delay(sub)
        dispatcher.release(sub)
    assert again <= done_before
    return again


@pytest.mark.parametrize(
    "broken",
    [
        lambda earlier, later: 1 / 0,
        lambda earlier, later: sys.exit("enough"),
        lambda earlier, later: SubMessage("another"),
    ],
)
def test_a_broken_coalesce_is_reported_and_nothing_is_finished(
    broken: Callable[[SubMessage, SubMessage], SubMessage | None],
) -> None:
    dispatcher = delivered("a", "a")
    batcher = Batcher(dispatcher, Batching(broken))

    with pytest.raises(HandleFailed, match="coalesce"):
        batcher.take()
    assert dispatcher.counts()[1] == counts(pending=2)


# --- batches ---


def test_a_barrier_is_not_with_what_another_partition_has() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 1), 1: Ledger(0, 1)})
    dispatcher.deliver(message_at(0, 1), [Barrier()])
    dispatcher.deliver(message_at(0), [SubMessage("a")])
    batcher = Batcher(dispatcher, Batching(most=9))

    barrier, other = taken(batcher), taken(batcher)

    assert [type(sub) for sub in barrier.subs] == [Barrier]
    assert [sub.key for sub in other.subs] == ["a"]


@pytest.mark.parametrize(
    ("keys", "batching"),
    [
        pytest.param(range(512), Batching(most=512), id="many lanes"),
        pytest.param("a" * 512, Batching(joined), id="folded"),
    ],
)
def test_the_one_that_makes_a_call_fail_is_found_in_a_few_calls(
    keys: Sequence[Hashable], batching: Batching
) -> None:
    dispatcher = delivered(*keys)
    batcher = Batcher(dispatcher, batching)
    calls, done = 0, list[int]()
    while (batch := batcher.take()) is not None:
        calls += 1
        offsets = [sub.message.offset for sub in batch.members]
        if 77 in offsets and len(offsets) > 1:
            retry(dispatcher, batcher, batch)
        else:
            assert [offset for sub in batch.subs for offset in sub.payload] == offsets
            done += offsets
            batcher.finish(batch)

    assert dispatcher.complete
    assert calls <= 2 * 9 + 1
    assert keys != "a" * 512 or done == list(range(512)), "a lane keeps its order"


# --- the laws ---

one_key = st.sampled_from("abc")
specs = st.one_of(
    one_key, one_key, one_key, st.lists(one_key, min_size=2, max_size=3, unique=True), st.none()
)


@given(
    backlog=st.lists(st.lists(specs, max_size=5), max_size=12),
    folds=st.booleans(),
    most=st.integers(1, 4),
    of=st.sampled_from(BatchOf),
    bad=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 4)), max_size=4),
    in_part=st.booleans(),
    seed=st.integers(0, 999),
)
def test_batches_keep_the_laws_of_single_sub_messages(
    backlog: list[list[str | list[str] | None]],
    folds: bool,
    most: int,
    of: BatchOf,
    bad: set[Place],
    in_part: bool,
    seed: int,
) -> None:
    """Sub-messages in ``bad`` fail each call that they are in; alone, they are given up.

    ``in_part``: the call has a result for each of its operations.
    """
    chance = Random(seed)
    dispatcher = one_partition(len(backlog))
    batcher = Batcher(dispatcher, Batching((lambda _, later: later) if folds else None, most, of))
    waiting = [(offset, [sub_of(spec) for spec in specs]) for offset, specs in enumerate(backlog)]
    keys = {
        (offset, index): ["barrier"] if isinstance(sub, Barrier) else list(sub.keys or [sub.key])
        for offset, subs in waiting
        for index, sub in enumerate(subs)
    }
    running: list[Batch] = []
    ended: list[Place] = []
    outcomes: dict[Place, Outcome] = {}
    while waiting or running or dispatcher.ready:
        what = chance.random()
        if waiting and what < 0.4:
            offset, subs = waiting.pop(0)
            dispatcher.deliver(message_at(offset), subs)
        elif len(running) < 3 and what < 0.8 and (batch := batcher.take()) is not None:
            assert len(batch.subs) <= most
            busy = {key for other in running for at in places(other.members) for key in keys[at]}
            assert not busy & {key for at in places(batch.members) for key in keys[at]}
            running.append(batch)
        elif running:
            batch = running.pop(chance.randrange(len(running)))
            failing = bad.intersection(places(batch.members))
            if failing and len(batch.subs) > 1 and in_part:
                before = dispatcher.counts()[1].done
                left = end_in_part(dispatcher, batcher, batch, bad)
                done = [at for at in places(batch.members) if at not in left]
                assert dispatcher.counts()[1].done == before + len(done)
                ended += done
                outcomes |= dict.fromkeys(done, Outcome.DONE)
            elif failing and len(batch.members) > 1:
                retry(dispatcher, batcher, batch)
            elif failing:
                dispatcher.finish(batch.members[0], Outcome.DEAD)
            else:
                batcher.finish(batch)
            if not failing or len(batch.members) == 1:
                outcome = Outcome.DEAD if failing else Outcome.DONE
                ended += places(batch.members)
                outcomes |= dict.fromkeys(places(batch.members), outcome)

    assert dispatcher.complete
    assert dispatcher.lanes.running == dispatcher.lanes.ready == len(dispatcher.lanes) == 0
    assert outcomes == {at: Outcome.DEAD if at in bad else Outcome.DONE for at in keys}
    assert len(ended) == len(keys)
    for key in "abc":
        lane = [at for at in ended if key in keys[at] or keys[at] == ["barrier"]]
        assert lane == sorted(lane)
    assert dispatcher.counts()[1].conserved
