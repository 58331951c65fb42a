"""A plan in an object store: written over what its writer knows, and over nothing else."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from builders import changed
from drainer.errors import LockLost, PlanNotWritten, PlanRefused, StateRefused, UsageError
from drainer.spark.state import stored_plan
from drainer.spark.state.bucket import Bucket
from drainer.spark.state.stored_plan import StoredPlan
from drainer.store.plan_file import plan_at
from store.plans import PLAN

URI = "s3://bucket/drains/orders.plan.json?region=eu-1"
NAME = "orders.plan.json"


class Store:
    """In memory, and as the test wants it: a request or its answer may be lost."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.lost = ""
        self.ignores: tuple[type, ...] = ()  # modes of a put: create is a text, and a tag is not

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, name: str, data: bytes, mode: Any = "overwrite", **options: Any) -> Any:
        if self.lost == "request":
            raise GenericError("connection refused")
        put = self.inner.put(
            name, data, mode="overwrite" if isinstance(mode, self.ignores) else mode
        )
        if self.lost == "answer":
            raise GenericError("timed out")
        return put


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return use(monkeypatch)


def use(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(stored_plan, "open_bucket", lambda uri: Bucket(cast("Any", store), uri))
    monkeypatch.setattr(stored_plan, "TRY_FOR_S", 0.0)
    monkeypatch.setattr(stored_plan, "TRY_AGAIN_S", 0.0)
    return store


def test_what_was_written_is_loaded(store: Store) -> None:
    written = StoredPlan(URI)
    assert not written.exists
    written.write(PLAN)
    assert written.exists
    assert plan_at(URI).load().plan == PLAN
    assert plan_at(URI).path == URI
    assert [each["path"] for each in store.list().collect()] == [NAME]


def test_a_plan_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(PlanRefused, match=r"the plan s3://bucket.* does not exist"):
        StoredPlan(URI).load()


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["", "", "request", "answer", "load"])),
        min_size=1,
        max_size=12,
    )
)
def test_a_write_replaces_only_what_its_writer_read_or_wrote(steps: list[tuple[int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        store = use(patched)
        StoredPlan(URI).write(PLAN)
        processes = [StoredPlan(URI), StoredPlan(URI)]
        for each in processes:
            each.load()
        newest, knowing = PLAN, {0, 1}  # the plan there, and who read or wrote it
        for generation, (number, step) in enumerate(steps, start=100):
            plan = changed(PLAN, generation=generation)
            if step == "load":
                assert processes[number].load().plan == newest
                knowing.add(number)
                continue
            store.lost = step
            arrives = number in knowing and step != "request"
            try:
                processes[number].write(plan)
            except LockLost:
                assert number not in knowing
            except PlanNotWritten:
                assert step
            else:
                assert arrives
            store.lost = ""
            if arrives:
                newest, knowing = plan, {number}
            assert StoredPlan(URI).load().plan == newest


def test_a_new_plan_is_not_written_over_one_that_has_appeared(store: Store) -> None:
    late = StoredPlan(URI)
    StoredPlan(URI).write(PLAN)
    with pytest.raises(LockLost, match="another process wrote"):
        late.write(changed(PLAN, generation=PLAN.account.generation + 1))


def test_what_was_set_aside_comes_back_when_the_new_drain_could_not_begin(store: Store) -> None:
    StoredPlan(URI).write(PLAN)
    first = changed(PLAN, drain_id="20260102-180000-abcdef", generation=1)

    plan = StoredPlan(URI)
    aside = plan.archive(plan.load().plan)
    assert aside == f"s3://bucket/drains/orders.plan.{PLAN.terms.drain_id}.json?region=eu-1"
    plan.write(first)
    assert StoredPlan(URI).load().plan == first
    plan.rollback(first, aside)

    assert StoredPlan(URI).load().plan == PLAN
    assert [each["path"] for each in store.list().collect()] == [NAME]


@pytest.mark.parametrize(
    ("ignored", "error"),
    [
        (str, "ignores If-None-Match, and overwrites objects"),
        (dict, "ignores If-Match, and overwrites changed objects"),
    ],
)
def test_a_store_without_conditional_puts_is_refused(
    ignored: type, error: str, store: Store
) -> None:
    StoredPlan(URI).acquire()
    store.ignores = (ignored,)
    with pytest.raises(StateRefused, match=error):
        StoredPlan(URI).acquire()
    assert store.list().collect() == []


@pytest.mark.parametrize("uri", ["hdfs://name/orders.json", "s3://AKIA:secret@bucket/orders.json"])
def test_a_uri_where_no_plan_can_be_is_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        plan_at(uri)
