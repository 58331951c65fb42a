"""A plan whose drain has tasks: loading it takes in what they reported, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import changed, counts, progress_at
from drainer.core.merge import Record
from drainer.errors import PlanRefused, PlanUnready
from drainer.model.account import StateReference
from drainer.model.claims import ALL, Shard, Stream
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Progress
from drainer.spark.state.state import Attempt, State
from drainer.store.plan_file import PlanFile
from store.plans import PLAN, with_progress
from store.stores import AT_ONCE, done, driven


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State.open(str(tmp_path / "orders.plan.json.state"), PLAN.terms.drain_id)
    return driven(made, 2)


def plan_at(state: State, epoch: int = 2, slice_: int = 3) -> OffsetPlan:
    return changed(PLAN, state=StateReference(state.uri, epoch, slice_))


@pytest.fixture
def file(tmp_path: Path, state: State) -> PlanFile:
    made = PlanFile(tmp_path / "orders.plan.json")
    made.write(plan_at(state))
    return made


def report(
    state: State, slice_: int, shard: int, *reported: dict[int, Progress], number: int = 0
) -> None:
    epoch = state.epoch()
    assert epoch is not None
    attempt = Attempt(epoch, slice_, shard, number)
    of = Shard(shard, 8)
    starts: dict[int, int] = {Stream(0, of): 120, Stream(2, of): 0}
    records = state.begin(attempt, starts)
    records.go_on_from(state.await_earlier_attempts(attempt, AT_ONCE))
    for changes in reported:
        records.append(Record({Stream(n, of): progress for n, progress in changes.items()}))
    records.end()


def subs(plan: OffsetPlan) -> dict[int, Counts]:
    """Sub-messages that tasks reported, by partition."""
    before = {n: progress.sub_messages for n, progress in PLAN.account.claims[ALL].items()}
    return {n: found.sub_messages - before[n] for n, found in plan.account.claims[ALL].items()}


def test_what_tasks_reported_is_in_the_plan(file: PlanFile, state: State) -> None:
    report(state, 3, 2, {0: done(123, count=3)}, {0: done(124, (126, 127), count=5)})
    report(state, 3, 4, {2: done(4, count=4)})
    loaded = file.load()

    assert loaded.plan.account.claims["2/8"][0] == progress_at(
        100, finished=((120, 124), (126, 127))
    )
    assert subs(loaded.plan) == {0: counts(done=10), 2: done(4, count=4).sub_messages}
    assert loaded.plan.account.watermarks == PLAN.account.watermarks
    assert loaded.written == plan_at(state)
    assert (loaded.records, loaded.torn) == (5, False)


def test_what_the_plan_left_behind_is_not_taken_in_again(file: PlanFile, state: State) -> None:
    """The driver died before it could remove the slice."""
    report(state, 2, 2, {0: done(123, count=3)})
    report(state, 3, 3, {0: done(122, count=2)})
    report(state, 4, 2, {0: done(121, count=1)})

    plan = file.load().plan
    assert sorted(plan.account.claims) == ["2/8", "3/8", ALL]
    assert subs(plan)[0] == counts(done=6)


def test_spoilt_records_are_noticed(file: PlanFile, state: State) -> None:
    report(state, 3, 2, {0: done(123, count=3)}, {0: done(124, count=4)})
    state.objects.put(f"{PLAN.terms.drain_id}/2/3/2/0/00000002", b"torn")
    loaded = file.load()
    assert (loaded.records, loaded.torn) == (2, True)
    assert subs(loaded.plan)[0] == counts(done=6)


def test_a_state_that_is_gone_is_refused(file: PlanFile, state: State) -> None:
    state.remove()
    with pytest.raises(PlanUnready, match="has no state of this drain") as caught:
        file.load()
    assert "orders.plan.json" in str(caught.value)
    assert "drainer run" in (caught.value.hint or "")


@pytest.mark.parametrize("uri", ["s3://bucket/d?no_such_option=1", "ftp://host"])
def test_a_state_that_can_not_be_reached_is_refused(uri: str, file: PlanFile) -> None:
    file.write(changed(PLAN, state=StateReference(uri, 1, 1)))
    file.allow_state(uri)
    with pytest.raises(PlanRefused, match="can't read it"):
        file.load()


def test_a_remote_state_is_read_only_where_a_person_named_its_bucket(
    file: PlanFile, state: State
) -> None:
    remote = StateReference("s3://bucket/d?region=eu-1&endpoint=http://evil.example", 2, 3)
    file.write(changed(PLAN, state=remote))

    with pytest.raises(
        PlanRefused, match=r"s3://bucket/d\?region=eu-1, which .* consent"
    ) as caught:
        file.load()
    assert "drainer resume" in (caught.value.hint or "")
    alone = file.load(without_reports=True).plan
    assert alone.account.claims == PLAN.account.claims
    assert file.state_to_confirm(alone) == "s3://bucket/d?region=eu-1"
    file.allow_state("s3://bucket/d?endpoint=https://minio.example")
    assert file.state_to_confirm(alone) is None
    opened = file.with_reachable_state(alone).account.state
    assert opened is not None
    assert opened.uri == "s3://bucket/d?region=eu-1&endpoint=https://minio.example"
    file.write(plan_at(state))
    assert file.load().plan.account.state is not None


def test_a_record_outside_of_the_backlog_is_refused(file: PlanFile, state: State) -> None:
    report(state, 3, 2, {0: done(120, (500, 501), count=1)})
    with pytest.raises(PlanRefused, match="past the end"):
        file.load()


def test_a_last_record_after_the_drivers_death_is_no_other_process(
    file: PlanFile, state: State
) -> None:
    report(state, 3, 2, {0: done(123, count=3)})
    seen = file.load()
    report(state, 3, 2, {0: done(124, count=4)}, number=1)
    file.ensure_unchanged(seen)

    file.write(changed(with_progress(plan_at(state), p2=done(9, count=9)), generation=8))
    with pytest.raises(PlanRefused, match="has changed"):
        file.ensure_unchanged(seen)
