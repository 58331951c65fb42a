"""A task's records: what a checkpointer writes becomes objects, in order, with nothing left out."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from builders import changed, counts
from drainer.core.merge import Record, TaskRecord
from drainer.errors import PlanNotWritten, StateLost
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Progress
from drainer.model.unhandled import Unhandled
from drainer.spark.state import records as records_module
from drainer.spark.state.records import Head, TaskRecords
from drainer.spark.state.state import Attempt, State
from store.plans import PLAN
from store.stores import AT_ONCE, DRAIN, FailingObjects, bucket, done, driven, folder

ATTEMPT = Attempt(1, 1, 2, 0)
STARTS = {0: 100}
LATE = {0: done(105, count=5)}


@pytest.fixture(params=[folder, bucket], ids=["folder", "object store"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> FailingObjects:
    return FailingObjects(request.param(tmp_path))


@pytest.fixture
def state(objects: FailingObjects, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(records_module, "TRY_AGAIN_S", 0.01)
    monkeypatch.setattr(records_module, "TRY_FOR_S", 0.05)
    return driven(State(objects, DRAIN))


def heads(state: State) -> list[Head]:
    """The task's next records that have a watermark."""
    found: list[Head] = []
    while news := state.news([(1, 1, task) for task in range(3)]):
        found += (head for _, head in news if head.marks)
    return found


@pytest.fixture
def records(state: State) -> TaskRecords:
    begun = state.begin(ATTEMPT, STARTS)
    begun.go_on_from(state.await_earlier_attempts(ATTEMPT, AT_ONCE))
    begun.write(PLAN)
    return begun


def marks(state: State) -> list[int]:
    """Watermarks of the task, by each of its records that has one."""
    return [head.marks["0/1"][0][1] for head in heads(state)]


def in_bucket(path: Path) -> tuple[FailingObjects, State, TaskRecords]:
    objects = FailingObjects(bucket(path))
    state = driven(State(objects, DRAIN))
    records = state.begin(ATTEMPT, STARTS)
    records.go_on_from(TaskRecord())
    return objects, state, records


def plan_with(claim: dict[int, Progress], generation: int = 1, **fields: Any) -> OffsetPlan:
    return changed(
        PLAN, claims={ALL: claim}, generation=generation, unhandled=Unhandled(), **fields
    )


def test_an_object_store_never_keeps_the_engine_waiting(tmp_path: Path) -> None:
    objects, state, records = in_bucket(tmp_path)
    objects.answers.clear()
    for number in (1, 2, 3):
        records.append(Record({0: done(100 + number, count=number)}))
    objects.answers.set()
    records.write(PLAN)
    assert marks(state)[:3] == [101, 102, 103]


def test_an_attempt_goes_on_only_once_its_first_record_is_written(
    state: State, objects: FailingObjects
) -> None:
    """Until then, late records of an earlier attempt count, which this one may do again."""
    begun = state.begin(ATTEMPT, STARTS)
    objects.full = True
    with pytest.raises(PlanNotWritten):
        begun.go_on_from(TaskRecord())


def test_a_plan_that_is_written_is_reported_to_the_last(state: State, records: TaskRecords) -> None:
    """A hole at the end raises the watermark, and nothing finished by that."""
    records.append(Record({0: done(103, count=3)}))
    records.start_journal(DRAIN, 2)
    records.write(plan_with({0: done(110, count=3)}, 2, parked=("'a'",)))
    reported = state.report((1, 1, 2)).record
    assert reported.claims["0/1"][0].finished == ((100, 110),)
    assert reported.parked == ("'a'",)


def test_a_plan_without_anything_new_is_no_record(state: State, records: TaskRecords) -> None:
    for generation in (2, 3, 4):
        records.start_journal(DRAIN, generation)
        records.write(plan_with({0: done(103, count=3)}, generation))
    assert marks(state) == [103]


def test_a_plan_whose_snapshot_is_older_than_a_record_is_no_record(
    state: State, records: TaskRecords
) -> None:
    """The older accounts would take those of the record back."""
    records.start_journal(DRAIN, 2)
    records.append(Record(LATE))
    records.write(plan_with({0: done(103, count=3)}, 2))
    assert state.report((1, 1, 2)).record.counts == {0: counts(done=10)}


def test_what_a_full_disk_did_not_take_goes_first_the_next_time(
    state: State, objects: FailingObjects, records: TaskRecords
) -> None:
    objects.full = True
    with suppress(PlanNotWritten):  # a folder raises at once
        records.append(Record({0: done(101, count=1)}, ("'a'",)))
    with pytest.raises(PlanNotWritten):
        records.write(PLAN)
    objects.full = False
    with suppress(PlanNotWritten):  # of a write that had begun before
        records.append(Record({0: done(102, count=2)}, ("'b'",)))
    with suppress(PlanNotWritten):
        records.write(PLAN)
    records.end()
    parked = [head.parked for head in heads(state)]
    assert parked[:2] == [("'a'",), ("'b'",)]
    assert not state.report((1, 1, 2)).torn


def test_a_record_whose_answer_was_lost_is_written_again_as_it_was(
    state: State, objects: FailingObjects, records: TaskRecords
) -> None:
    """A driver may have read it by then."""
    objects.arrives_anyway = True
    with suppress(StateLost):
        records.append(Record({0: done(101, count=1)}))
    with pytest.raises(StateLost):
        records.write(PLAN)
    assert marks(state) == [101]
    objects.arrives_anyway = False
    with suppress(StateLost):  # of a write that had begun before
        records.append(Record({0: done(102, count=2)}))
    with suppress(StateLost):
        records.write(PLAN)
    records.write(PLAN)
    assert marks(state) == [102]


def test_an_object_store_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "TRY_AGAIN_S", 0.01)
    objects, state, records = in_bucket(tmp_path)
    objects.gone = True
    records.append(Record({0: done(101, count=1)}))
    healed = threading.Timer(0.1, lambda: setattr(objects, "gone", False))
    healed.start()
    records.end()
    assert marks(state) == [101]
    assert state.attempts_are_over(below=2)


def test_an_object_store_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "FLUSH_S", 0.1)
    objects, _state, records = in_bucket(tmp_path)
    objects.answers.clear()
    records.append(Record({0: done(101, count=1)}))
    with pytest.raises(StateLost, match="no answer for"):
        records.end()
    objects.answers.set()


def test_the_end_comes_after_all_records(
    state: State, objects: FailingObjects, records: TaskRecords
) -> None:
    for number in range(1, 6):
        records.append(Record({0: done(100 + number, count=number)}))
    records.end()
    names = [name.rpartition("/")[2] for name in objects.puts]
    assert names[-6:] == ["00000001", "00000002", "00000003", "00000004", "00000005", "ended"]
