"""A plan in an object store: written over what its writer knows, and over nothing else; what of a
state's URI it keeps, and what of a plan is trusted."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from builders import changed
from drainer.errors import LockLost, PlanGone, PlanNotWritten, PlanRefused, StateRefused, UsageError
from drainer.store import plan_bucket
from drainer.store.bucket import Bucket
from drainer.store.place import uri_to_keep, uri_to_open
from drainer.store.plan_bucket import BucketPlan
from drainer.store.plan_file import plan_at
from kafka.topic import eventually
from store.plans import PLAN
from store.test_journal import RECORDS, merged

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
    monkeypatch.setattr(plan_bucket, "open_bucket", lambda uri: Bucket(cast("Any", store), uri))
    monkeypatch.setattr(plan_bucket, "TRY_FOR_S", 0.0)
    monkeypatch.setattr(plan_bucket, "TRY_AGAIN_S", 0.0)
    return store


def test_what_was_written_is_loaded(store: Store) -> None:
    written = BucketPlan(URI)
    assert not written.exists
    written.write(PLAN)
    assert written.exists
    assert plan_at(URI).load().plan == PLAN
    assert plan_at(URI).path == URI
    assert [each["path"] for each in store.list().collect()] == [NAME]


def test_a_plan_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(PlanRefused, match=r"the plan s3://bucket.* does not exist"):
        BucketPlan(URI).load()


def test_a_plan_that_is_removed_while_it_is_written_is_gone(store: Store) -> None:
    """Another process may begin a new one, which a resume would not know from this one."""
    plan = BucketPlan(URI)
    plan.write(PLAN)
    store.delete(NAME)
    with pytest.raises(PlanGone, match=r"the plan s3://bucket.* was removed"):
        plan.write(changed(PLAN, generation=100))
    assert not plan.exists


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
        BucketPlan(URI).write(PLAN)
        processes = [BucketPlan(URI), BucketPlan(URI)]
        newest, knowing = PLAN, set[int]()  # the plan there, and who read or wrote it
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
            except (LockLost, PlanRefused):
                assert number not in knowing
            except PlanNotWritten:
                assert step
            else:
                assert arrives
            store.lost = ""
            if arrives:
                newest, knowing = plan, {number}
            assert BucketPlan(URI).load().plan == newest


def test_a_store_that_fails_delays_the_journal_and_says_so_and_no_record_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BucketPlan, "journal_interval_s", 0.01)
    monkeypatch.setattr(plan_bucket, "SILENCE_S", 0.05)
    plan = BucketPlan(URI)
    plan.write(PLAN)
    plan.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    for number, record in enumerate(RECORDS, start=1):
        for lost in ("request", "answer"):
            store.lost = lost
            plan.append(record)
            eventually(lambda: plan.trouble is not None, "the trouble is shown")
            trouble = plan.trouble or ""
            assert trouble.startswith("the journal waits for s3://bucket/drains/orders.plan.json")
        store.lost = ""
        eventually(lambda: plan.trouble is None, "the trouble is over")
        found = BucketPlan(URI).load()
        assert found.plan == merged(RECORDS[:number])
        assert not found.torn
    plan.release()


def test_what_was_set_aside_comes_back_when_the_new_drain_could_not_begin(store: Store) -> None:
    BucketPlan(URI).write(PLAN)
    first = changed(PLAN, drain_id="20260102-180000-abcdef", generation=1)

    plan = BucketPlan(URI)
    aside = plan.archive(plan.load().plan)
    assert aside == f"s3://bucket/drains/orders.plan.{PLAN.terms.drain_id}.json?region=eu-1"
    plan.write(first)
    assert BucketPlan(URI).load().plan == first
    plan.rollback(first, aside)

    assert BucketPlan(URI).load().plan == PLAN
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
    BucketPlan(URI).acquire()
    store.ignores = (ignored,)
    with pytest.raises(StateRefused, match=error):
        BucketPlan(URI).acquire()
    assert store.list().collect() == []


@pytest.mark.parametrize(
    "uri",
    [
        "hdfs://name/orders.json",
        "webhdfs://name:9870/orders.json",
        "s3://AKIA:secret@bucket/orders.json",
    ],
)
def test_a_uri_where_no_plan_can_be_is_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        plan_at(uri)


EVIL = "endpoint=http://evil.example"


@pytest.mark.parametrize(
    ("uri", "of_it"),
    [
        ("s3://bucket/d?region=eu-west-1&endpoint=https://minio.example", "?region=eu-west-1"),
        (f"s3://bucket/d?{EVIL}", ""),
        (f"s3://bucket/d?AWS_ENDPOINT_URL=http://evil.example&aws_{EVIL}", ""),
        ("s3://bucket/d?proxy_url=http://evil.example&metadata_endpoint=http://evil.example", ""),
        ("s3://bucket/d?region=a.evil.example%23", ""),
        ("s3://bucket/d?aws_region=eu-west-1#x", "?aws_region=eu-west-1"),
    ],
)
def test_a_plan_keeps_no_endpoint(uri: str, of_it: str) -> None:
    assert uri_to_keep(uri) == f"s3://bucket/d{of_it}"


@pytest.mark.parametrize("uri", ["/srv/state", "file:///srv/state"])
def test_a_folder_is_what_it_is(uri: str) -> None:
    assert uri_to_keep(uri) == uri
    assert uri_to_open(uri, ()) == uri


def test_a_state_is_reached_by_what_a_person_named_in_its_bucket() -> None:
    known = f"s3://bucket/drains/d?region=eu-west-1&{EVIL}"
    own = "s3a://bucket/drains/p.json?endpoint=https://minio.example"
    assert uri_to_open(known, ()) is None
    assert uri_to_open(known, ["s3://other/d", "gs://bucket/d", "/bucket"]) is None
    endpoint = "endpoint=https://minio.example"
    assert uri_to_open(known, [own]) == f"s3://bucket/drains/d?region=eu-west-1&{endpoint}"
    assert uri_to_open(known, ["s3://bucket/x"]) == "s3://bucket/drains/d?region=eu-west-1"


def test_what_is_not_a_uri_is_refused() -> None:
    for uri in ("s3://[bucket/d", "s3://bucket]/d"):
        with pytest.raises(UsageError, match="not a valid URI"):
            uri_to_keep(uri)
