"""Folding: what tasks told is in the plan once, however often it is taken in."""

from __future__ import annotations

from dataclasses import replace

from drainer.core.claims import ALL
from drainer.core.merge import Record, StateReference, fold
from drainer.core.plan import OffsetPlan, PartitionPlan
from drainer.core.progress import Counts, Progress
from drainer.policy.rules.settings import RuleAccount


def plan_of(*ends: int, **fields: object) -> OffsetPlan:
    """A plan with nothing done, whose partitions begin at 0 and end there."""
    numbers = range(len(ends))
    plan = OffsetPlan(
        drain_id="d",
        created="c",
        updated="u",
        generation=1,
        cluster_id="c",
        bootstrap_servers="b",
        client_config=None,
        isolation="read_committed",
        topic="t",
        topic_id="i",
        topic_partitions=1,
        group="g",
        handler="h:H",
        order="sub-key",
        partitions={n: PartitionPlan(0, end, 0, 0) for n, end in zip(numbers, ends, strict=True)},
        claims={ALL: {n: Progress(0) for n in numbers}},
        state=StateReference("/state", 1, 1),
    )
    return replace(plan, **fields)  # type: ignore[arg-type]


def counted(done: int, subs: int | None = None) -> tuple[Counts, Counts]:
    return Counts(done, done), Counts(*[done if subs is None else subs] * 2)


def test_folding_again_changes_nothing() -> None:
    told = [
        (ALL, Record({0: Progress(0, ((2, 4),), {}, *counted(2, 7))}, ("'a'",))),
        (
            "2/8",
            Record(
                {0: Progress(0, ((4, 5),), {}, Counts(), Counts(2, 1, 0, 1))},
                (),
                RuleAccount({"r": 1}),
            ),
        ),
    ]
    once = fold(plan_of(10), told)
    assert fold(once, told) == once
    read = OffsetPlan.decode(once.encode())
    assert read == once
    assert fold(read, told) == once


def test_accounts_of_rules_are_sums_and_what_they_remember_is_the_most() -> None:
    known = RuleAccount(
        {"a": 10}, {"limit": 5}, {0: 3}, {"'k'": 2, "'l'": 9}, {"1/2": {0: 4, 1: 1}, "1/3": {0: 8}}
    )
    base = plan_of(9, ruled=known)
    one = Record({}, ruled=RuleAccount({"a": 1, "b": 2}, {}, {0: 7}, {"'k'": 4}))
    two = Record({}, ruled=RuleAccount({"a": 3}, {"limit": 1}, {0: 6, 1: 2}, {"'m'": 1}))
    plan = fold(fold(base, [("0/2", one)]), [("0/2", one), ("1/2", two)])

    assert plan.ruled == RuleAccount(
        {"a": 14, "b": 2},
        {"limit": 6},
        {0: 3},
        {"'k'": 4, "'l'": 9, "'m'": 1},
        {"0/2": {0: 7}, "1/2": {0: 6, 1: 2}, "1/3": {0: 8}},
    )
    assert plan.state is not None
    assert plan.state.ruled == RuleAccount({"a": 4, "b": 2}, {"limit": 1})


def test_a_claim_that_was_folded_into_all_takes_its_account_along() -> None:
    """Between two waves a driver moves all into "all": nothing is to be taken off it."""
    told = [("2/8", Record({0: Progress(0, ((0, 3),), {}, *counted(3, 9))}))]
    plan = fold(plan_of(10), told)
    moved = replace(plan, claims={ALL: {0: Progress(3, (), {}, *counted(3, 9))}})
    assert fold(moved, []).claims == moved.claims
