"""A class before the rest: what of it may be first, and its claim afterwards."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_plan, advanced, changed, counts
from core.letters import Sample, as_record
from core.messages import message_at, sub_of, take_all
from drainer.core.first import KeyBloom, LaneLengths, PriorityDispatcher
from drainer.core.other_claims import ClassMap
from drainer.errors import PlanRefused
from drainer.insight.first import PassDivider
from drainer.insight.workload import Keys, Workload
from drainer.message import Unsplit
from drainer.model.account import Account
from drainer.model.claims import ALL, class_selector
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.priority import PriorityClass, PriorityClasses
from drainer.model.progress import Outcome
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.policy.redrive import LeftAlone, Redriven, split_letter
from drainer.policy.rules import Selection

WHERE = "key =~ 'c.*'"
SMALL = 2**10  # bits


def first_of(plan: OffsetPlan, bits: int = SMALL) -> PriorityDispatcher:
    return PriorityDispatcher(plan, WHERE, None, bits)


def deliver(dispatcher: PriorityDispatcher, offset: int, *specs: str | list[str] | None) -> None:
    message = message_at(offset)
    if dispatcher.wants(message):
        dispatcher.deliver(message, [sub_of(spec) for spec in specs])


def finish_all(dispatcher: PriorityDispatcher) -> list[str]:
    """Handles all that may be first; gives it by place."""
    found: list[str] = []
    while taken := take_all(dispatcher):
        found += taken
        for sub in taken.values():
            dispatcher.finish(sub)
    return found


def with_class(plan: OffsetPlan) -> OffsetPlan:
    return advanced(changed(plan, classes=PriorityClasses((PriorityClass(WHERE),))), Account.begun)


def after(plan: OffsetPlan, dispatcher: PriorityDispatcher) -> OffsetPlan:
    return changed(plan, claims=dispatcher.claims())


def test_it_takes_what_matches_and_nothing_else() -> None:
    plan = with_class(a_plan(4))
    dispatcher = first_of(plan)
    deliver(dispatcher, 0, "a", "c1")
    deliver(dispatcher, 1, "b")
    deliver(dispatcher, 2, "c2", "c1")
    dispatcher.skip_to(0, 4)
    assert finish_all(dispatcher) == ["0[1]", "2[0]", "2[1]"]
    assert dispatcher.complete
    assert (dispatcher.beside.total(), dispatcher.deferred) == (2, 0)
    after_it = after(plan, dispatcher)
    claim = after_it.account.claims[class_selector(WHERE)][0]
    assert (claim.watermark, claim.finished, claim.partial) == (4, (), {})
    assert after_it.account.watermark(0) == 0, "the group's offset stays where it was"
    assert after_it.account.counts()[1] == counts(done=3)
    after_it.account.check()


def test_a_plan_stays_small_however_customers_are_interleaved() -> None:
    plan = with_class(a_plan(20_000))
    dispatcher = first_of(plan, bits=2**22)
    for offset in range(20_000):
        deliver(dispatcher, offset, f"{'c' if offset % 40 == 7 else 'x'}{offset % 40}")
        if offset % 100 == 0:
            finish_all(dispatcher)
    finish_all(dispatcher)
    assert len(after(plan, dispatcher).encode()) < 3_200


def test_a_map_has_what_other_claims_finished_for_no_other_may_show_them() -> None:
    plan = with_class(a_plan(2))
    other = replace(plan.account.claims[ALL][0], watermark=2)
    plan = changed(plan, claims={**plan.account.claims, class_selector("key == 'c1'"): {0: other}})
    dispatcher = first_of(plan)
    deliver(dispatcher, 0, "a")
    deliver(dispatcher, 1, "c1")
    assert finish_all(dispatcher) == []
    assert [dispatcher.found.may_have(0, offset) for offset in (0, 1)] == [False, True]


def test_what_one_task_finished_of_all_is_known_beside_what_all_have() -> None:
    """Spark's single shard has the selector 0/1, and so has all."""
    plan = with_class(a_plan(3))
    one = replace(plan.account.claims[ALL][0], watermark=2)
    plan = changed(plan, claims={**plan.account.claims, "0/1": {0: one}})
    dispatcher = first_of(plan)
    for offset in range(3):
        deliver(dispatcher, offset, "c1")
    assert finish_all(dispatcher) == ["2[0]"]


@pytest.mark.parametrize("where", ["payload.customer == 7", "payload.customer == 8", "key == 'a'"])
def test_a_letter_is_judged_as_what_it_was_whether_it_is_redriven_or_not(where: str) -> None:
    """Else a redrive of others would take one for finished that none has handled."""
    letter = as_record(Sample(key="a", payload={"customer": 7}).letter(), 0)
    some = RedriveSettings(LetterFilter(sub_keys=("b",)))
    redriven, ignored = (
        list(split_letter(RedriveSettings(), letter)),
        list(split_letter(some, letter)),
    )
    assert (type(redriven[0]), type(ignored[0])) == (Redriven, LeftAlone)
    selection = Selection(where)
    assert selection.bits(redriven) == selection.bits(ignored) == int("8" not in where)


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3)), max_size=15))
def test_a_filter_errs_only_towards_waiting(added: list[tuple[int, str]]) -> None:
    for bits in (8, SMALL):
        lanes = KeyBloom(bits)
        for partition, lane in added:
            lanes.add(partition, (lane,))
        assert all(lanes.has_any(partition, ("none", lane)) for partition, lane in added)
    assert not KeyBloom(SMALL).has_any(0, ("a", "b"))


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 99), st.integers(0, 10**9))),
    st.data(),
)
def test_a_map_errs_only_towards_yes(
    sizes: dict[int, tuple[int, int]], data: st.DataObject
) -> None:
    ranges = {number: (start, start + size) for number, (start, size) in sizes.items()}
    map_ = ClassMap(ranges)
    for number, (start, end) in ranges.items():
        if start < end:
            offset = data.draw(st.integers(start, end - 1))
            map_.add(number, offset, True)
            assert map_.may_have(number, offset)
            assert map_.may_have(number, start - 1), "an offset that was never added"
            assert map_.may_have(number, offset + 1), "what it has not come to"


def test_a_map_is_exact_in_a_small_backlog() -> None:
    map_ = ClassMap({0: (10, 20), 3: (0, 5)})
    for offset in range(10, 20):
        map_.add(0, offset, offset == 12)
    for offset in range(5):
        map_.add(3, offset, offset == 4)
    assert [n for n in range(10, 20) if map_.may_have(0, n)] == [12]
    assert [n for n in range(5) if map_.may_have(3, n)] == [4]


def test_classes_of_a_plan_are_taken_in_their_order_and_may_be_named_anew() -> None:
    classes = PriorityClasses().requested(("key == 'a'", "key == 'b'"), only=False)
    assert classes.next == "key == 'a'"
    classes = classes.with_ended("key == 'a'", "2026-11-23T10:00:00+00:00", 3, cut=False)
    assert classes.next == "key == 'b'"
    again = classes.requested(("key == 'c'", "key == 'a'"), only=True)
    assert [each.where for each in again.each] == ["key == 'c'", "key == 'a'"]
    assert again.next == "key == 'c'"
    for where in ("key == 'c'", "key == 'a'"):
        assert not again.stops
        again = again.with_ended(where, "2026-11-23T10:00:00+00:00", 0, cut=False)
    assert again.stops
    assert not again.resumed().stops, "a resume takes the rest"


@pytest.mark.parametrize("where", ["key ==", "nonsense == 1", "1 == 1"])
def test_a_plan_with_a_class_that_cannot_be_understood_is_refused(where: str) -> None:
    plan = a_plan(3, classes=PriorityClasses((PriorityClass(where),)))
    with pytest.raises(PlanRefused, match="class"):
        plan.account.check()


def test_a_message_that_was_rejected_and_given_up_holds_nothing_back_once_it_splits() -> None:
    plan = with_class(a_plan(3))
    dispatcher = first_of(plan, bits=2**20)
    message = message_at(0)
    assert dispatcher.wants(message)
    dispatcher.deliver(message, [Unsplit(b"", "ValueError", "x", "x")])
    unit = dispatcher.next_rejected()
    assert unit is not None
    dispatcher.finish(unit, Outcome.DEAD)
    dispatcher.changes()  # as the journal does
    resumed = first_of(advanced(after(plan, dispatcher), Account.without_pending), bits=2**20)
    deliver(resumed, 0, ["c1", "a"])
    deliver(resumed, 1, "c1")
    deliver(resumed, 2, "x")
    assert finish_all(resumed) == ["1[0]"]
    assert (resumed.deferred, resumed.complete) == (0, True)


def test_an_estimate_counts_sub_messages_of_a_class_that_wait_for_the_rest() -> None:
    divider = PassDivider([WHERE], Order.SUB_KEY)
    for specs in (["a", "c1"], [["a", "c2"], "c2"], [None, "c3"]):
        subs = [sub_of(spec) for spec in specs]
        message = message_at(0)
        for index, sub in enumerate(subs):
            sub.message, sub.index = message, index
        first, _rest = divider.divide(0, subs, 10.0)
        assert [sub.key for sub in first] == (["c1"] if specs == ["a", "c1"] else [])
    workload = Workload([], Keys())
    (found,), _ = divider.divided([workload, workload], 3)
    assert found.deferred == 20  # c2 behind the one that waits for a, and c3 behind a barrier


@pytest.mark.parametrize("lanes", [50, 40_000])
def test_the_share_of_the_longest_lane_is_known_in_bounded_memory(lanes: int) -> None:
    chance, lengths = Random(1), LaneLengths(most=1_000)
    for _ in range(60_000):
        hot = chance.random() < 0.1
        lengths.add(("hot",) if hot else (chance.randrange(lanes),))
    assert lengths.share == pytest.approx(0.1, rel=0.05)
    assert len(lengths._counts) <= 1_000  # noqa: SLF001 - its memory is what this is about


def test_without_lanes_there_is_no_longest() -> None:
    lengths = LaneLengths()
    assert lengths.share == 0.0
    lengths.add(())
    assert lengths.share == 0.0
