"""The port of a saved plan, with a file, a bucket and a topic behind it.

A plan is written whole or not at all, by one process at a time, and its journal never has a record
without those before it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from builders import changed
from drainer.errors import (
    DrainerError,
    LockLost,
    PlanGone,
    PlanNotWritten,
    PlanRefused,
    PlanUnready,
    TopicMissing,
)
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.compacted import CompactedTopic
from drainer.kafka.settings import ClientSettings
from drainer.model.plan import OffsetPlan
from drainer.store import plan_log
from drainer.store.bucket import Bucket
from drainer.store.plan_bucket import BucketPlan
from drainer.store.plan_file import PlanFile, plan_at
from drainer.store.plan_log import PART_BYTES
from drainer.store.plan_topic import TopicPlan
from drainer.store.saved_plan import LoadedPlan, SavedPlan
from kafka.topic import eventually
from s3 import S3
from store.plans import PLAN
from store.test_journal import RECORDS, merged

WAIT_S = 10.0
DRAIN = PLAN.terms.drain_id
OTHER = changed(PLAN, drain_id="20260102-180000-abcdef", generation=1)


class Place:
    """A place for one plan, which several processes open."""

    def __init__(self, kind: str, open_plan: Callable[[], SavedPlan]) -> None:
        self.kind = kind
        self.open = open_plan
        self.opened: list[SavedPlan] = []

    def process(self) -> SavedPlan:
        """Another process that looks at the plan and may write it."""
        self.opened.append(self.open())
        return self.opened[-1]

    def holder(self) -> SavedPlan:
        """A process that has the plan: it has locked what can be locked, and read what is there."""
        plan = self.process()
        plan.acquire()
        if plan.exists:
            plan.load()
        return plan

    def lose_piece(self, plan: SavedPlan, number: int) -> None:
        """Lose a record of the first journal, but nothing after it."""
        match plan:
            case PlanFile():
                path = plan.path.with_name(f"{plan.path.name}.journal-7")
                lines = path.read_bytes().splitlines(keepends=True)
                path.write_bytes(b"".join([*lines[:number], b"torn\n", *lines[number + 1 :]]))
            case BucketPlan():
                plan._bucket.discard([f"{plan._journal(DRAIN)}/{7:08d}-{number:08d}"])  # noqa: SLF001
            case TopicPlan():
                self._bury(plan, f"/journal/7/{number}")

    def lose_journal(self, plan: SavedPlan, generation: int) -> None:
        match plan:
            case PlanFile():
                plan.path.with_name(f"{plan.path.name}.journal-{generation}").unlink()
            case BucketPlan():
                plan._bucket.discard([f"{plan._journal(DRAIN)}/{generation:08d}-{1:08d}"])  # noqa: SLF001
            case TopicPlan():
                self._bury(plan, f"/journal/{generation}/1")

    def _bury(self, plan: TopicPlan, ending: str) -> None:
        own = plan._own  # noqa: SLF001
        assert own is not None
        key = f"orders.indexer/{own.epoch}/{own.token}{ending}".encode()
        plan._topic.write([(key, None)])  # noqa: SLF001

    def die(self, plan: SavedPlan) -> None:
        """End a process by force. What it has not sent yet is lost."""
        if isinstance(plan, BucketPlan) and plan._uploads is not None:  # noqa: SLF001
            plan._uploads._waiting.clear()  # noqa: SLF001
        plan.release()


@pytest.fixture(params=["file", "bucket", "topic"])
def place(request: pytest.FixtureRequest, tmp_path: Path, topic_name: str) -> Iterator[Place]:
    match request.param:
        case "file":
            made = Place("file", lambda: PlanFile(tmp_path / "orders.plan.json"))
        case "bucket":
            s3: S3 = request.getfixturevalue("s3")
            uri = s3.uri(f"{topic_name}/orders.plan.json")
            made = Place("bucket", lambda: plan_at(uri))
        case _:
            settings = ClientSettings.load(request.getfixturevalue("bootstrap"))
            uri = f"kafka://{topic_name}/orders.indexer"
            made = Place("topic", lambda: plan_at(uri, client=lambda: settings))
    with patch.object(BucketPlan, "journal_interval_s", 0.05):
        yield made
        for each in made.opened:
            each.release()


def at(generation: int, count: int = 0) -> OffsetPlan:
    """The plan of a generation, with the first records in it."""
    return changed(merged(RECORDS[:count]), generation=generation)


def begun(place: Place, count: int = 0) -> SavedPlan:
    """A process that has written the plan and appended the first records to its journal."""
    plan = place.holder()
    plan.write(PLAN)
    plan.start_journal(DRAIN, PLAN.account.generation)
    for record in RECORDS[:count]:
        plan.append(record)
    return plan


def seen(place: Place) -> LoadedPlan:
    return place.process().load()


def arrives(place: Place, plan: OffsetPlan) -> None:
    eventually(lambda: seen(place).plan == plan, "the journal is written", WAIT_S)


def test_what_was_written_is_there_for_every_process(place: Place) -> None:
    looking = place.process()
    assert not looking.exists
    with pytest.raises(PlanRefused, match="does not exist"):
        looking.load()
    place.holder().write(PLAN)
    assert looking.exists
    assert looking.load().plan == PLAN
    assert not place.process().load().torn


def test_the_journal_adds_to_the_plan_until_the_next_one_has_its_records(place: Place) -> None:
    plan = begun(place, 2)
    arrives(place, merged(RECORDS[:2]))
    plan.start_journal(DRAIN, 8)
    plan.append(RECORDS[2])
    arrives(place, merged(RECORDS[:3]))
    assert seen(place).records == 3
    plan.write(at(8, 2))
    eventually(lambda: seen(place).records == 1, "the merged journal counts no more", WAIT_S)
    arrives(place, at(8, 3))
    plan.append(RECORDS[3])
    arrives(place, at(8, 4))
    assert not seen(place).torn
    plan.start_journal(DRAIN, 9)
    plan.write(at(9, 4))
    plan.remove_journals()
    eventually(lambda: seen(place).records == 0, "no journal is left", WAIT_S)
    assert seen(place).plan == at(9, 4)


def test_a_plan_after_which_nothing_finished_at_first_is_not_taken_for_damaged(
    place: Place,
) -> None:
    plan = begun(place, 2)
    plan.start_journal(DRAIN, 8)
    plan.write(at(8, 2))
    plan.start_journal(DRAIN, 9)  # The next plan is on its way.
    plan.append(RECORDS[2])
    plan.append(RECORDS[3])
    arrives(place, at(8, 4))
    assert not seen(place).torn


def test_a_plan_of_many_megabytes_comes_back_and_is_replaced_by_a_small_one(place: Place) -> None:
    chance = random.Random(4)
    parked = tuple(sorted(f"{chance.randbytes(48).hex()}" for _ in range(30_000)))
    large = changed(PLAN, parked=parked)
    assert len(large.encode()) > 5 * PART_BYTES
    plan = place.holder()
    plan.write(large)
    assert seen(place).plan == large
    plan.write(changed(large, generation=8))
    assert seen(place).plan == changed(large, generation=8)
    plan.write(at(9))
    assert seen(place).plan == at(9)


def test_of_two_processes_that_have_read_the_plan_one_writes_it(place: Place) -> None:
    place.holder().write(PLAN)
    for each in place.opened:
        each.release()
    first, second = place.process(), place.process()
    first.acquire()
    if place.kind == "file":
        with pytest.raises(PlanUnready, match="another drainer process uses"):
            second.acquire()
        return
    second.acquire()
    assert first.load() == second.load()
    first.write(at(8))
    with pytest.raises(PlanUnready, match="another process has the plan"):
        second.write(at(9))
    assert seen(place).plan == at(8)


def test_a_process_that_was_replaced_stops_and_changes_nothing_more(place: Place) -> None:
    if place.kind == "file":
        pytest.skip("no other process can lock the file")
    zombie = begun(place, 1)
    arrives(place, merged(RECORDS[:1]))
    winner = place.holder()
    taken = changed(seen(place).plan, generation=9)
    winner.write(taken)
    with suppress(DrainerError):
        zombie.append(RECORDS[3])
    with pytest.raises(LockLost, match="another process has the plan"):
        zombie.write(at(8, 2))
    zombie.start_journal(DRAIN, 8)
    with suppress(DrainerError):
        zombie.append(RECORDS[3])
    zombie.release()
    assert seen(place).plan == taken
    winner.start_journal(DRAIN, 9)
    winner.append(RECORDS[1])
    arrives(place, merged(RECORDS[1:2], taken))
    winner.write(changed(taken, generation=10))


def test_who_was_replaced_before_the_other_wrote_a_plan_is_not_lost(place: Place) -> None:
    """The next owner wins the plan and dies: what the former one wrote is all there is."""
    if place.kind != "topic":
        pytest.skip("only a topic has bids")
    former, next_ = begun(place, 1), place.holder()
    arrives(place, merged(RECORDS[:1]))
    next_.load()
    assert isinstance(next_, TopicPlan)
    next_._won()  # noqa: SLF001
    next_.release()
    with pytest.raises(LockLost, match=r"\w@\S+ has it since"):
        former.write(at(8, 2))
    assert seen(place).plan == at(8, 2)
    last = place.holder()
    last.write(at(10, 2))
    assert seen(place).plan == at(10, 2)


def test_a_drain_ends_once_the_topic_of_its_plan_was_recreated(
    place: Place, request: pytest.FixtureRequest, topic_name: str
) -> None:
    if place.kind != "topic":
        pytest.skip("only a topic is recreated under a client that goes on")
    cluster: Cluster = request.getfixturevalue("cluster")
    plan = begun(place)
    for generation in range(8, 12):  # The new topic is shorter than the old one for a while.
        plan.write(at(generation))
    cluster.delete_topic(topic_name)
    eventually(lambda: topic_name not in cluster.topic_names(), "the topic is gone")
    cluster.create_topic(topic_name)
    eventually(lambda: topic_name in cluster.topic_names(), "the topic is there again")
    for generation in range(12, 17):
        with pytest.raises(PlanGone, match="recreated"):
            plan.write(at(generation))


def test_a_piece_of_the_journal_that_is_not_written_stops_the_drain_and_makes_a_gap(
    place: Place,
) -> None:
    if place.kind != "topic":
        pytest.skip("a file fails at once, and a bucket is tried again and again")
    plan = begun(place, 1)
    arrives(place, merged(RECORDS[:1]))
    failed = Future[None]()
    failed.set_exception(PlanNotWritten("no answer"))
    with (
        patch.object(CompactedTopic, "send", lambda *_: failed),
        pytest.raises(PlanNotWritten, match="no answer"),
    ):
        plan.append(RECORDS[1])
    plan.append(RECORDS[2])  # The drain stops, and notes what finishes meanwhile.
    eventually(lambda: seen(place).torn, "the gap is seen", WAIT_S)
    assert seen(place).plan == merged(RECORDS[:1])
    plan.write(at(8, 3))
    assert seen(place).plan == at(8, 3)
    assert not seen(place).torn


class Died(BaseException):
    """The process was killed."""


class Mortality:
    """Kills a process at one of its requests to a bucket or a topic."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.dead = False

    def wrap(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            self.left -= 1
            self.dead = self.dead or self.left < 0
            if self.dead:
                raise Died
            return request(*args, **options)

        return made


STEPS = [pytest.param(n, marks=pytest.mark.long if n % 3 else ()) for n in range(24)]


@pytest.mark.parametrize("after", STEPS)
def test_killed_at_any_request_the_plan_is_whole_and_has_what_was_acknowledged(
    after: int, place: Place
) -> None:
    if place.kind == "file":
        pytest.skip("test_plan_file.py breaks off each write of a file")
    plan, death = begun(place), Mortality(after)
    known = 0
    kinds = {Bucket: ("put", "replace", "discard", "remove"), CompactedTopic: ("send",)}
    with pytest.MonkeyPatch.context() as patched:
        for kind, names in kinds.items():
            for name in names:
                patched.setattr(kind, name, death.wrap(getattr(kind, name)))
        patched.setattr(plan_log, "PART_BYTES", 1500)
        patched.setattr(threading, "excepthook", lambda _: None)
        with suppress(Died):
            for count, record in enumerate(RECORDS, start=1):
                plan.append(record)
                plan.start_journal(DRAIN, 7 + count)
                plan.write(at(7 + count, count))
                known = count
        if isinstance(plan, TopicPlan):
            plan._topic._producer.close(WAIT_S)  # type: ignore[union-attr]  # noqa: SLF001
        found = place.process().load()
    assert not found.torn
    possible = [at(7 + known, n) for n in (known, known + 1)]
    possible.append(at(8 + known, known + 1))
    assert found.plan in possible
    heir = place.holder()
    heir.write(changed(found.plan, generation=20))
    assert seen(place).plan == changed(found.plan, generation=20)


def test_a_record_without_those_before_it_is_left_out_with_all_after_it(place: Place) -> None:
    plan = begun(place)
    for number, record in enumerate(RECORDS, start=1):
        plan.append(record)
        arrives(place, merged(RECORDS[:number]))
    place.lose_piece(plan, 3)
    found = seen(place)
    assert found.torn
    assert found.plan == merged(RECORDS[:2])
    assert found.left_out > 0
    assert "is damaged or missing" in found.warnings[0]


def test_a_later_journal_does_not_count_if_one_before_it_is_lost(place: Place) -> None:
    plan = begun(place, 1)
    arrives(place, merged(RECORDS[:1]))
    plan.start_journal(DRAIN, 8)
    plan.append(RECORDS[1])
    arrives(place, merged(RECORDS[:2]))
    place.lose_journal(plan, 7)
    found = seen(place)
    assert found.torn
    assert found.plan == PLAN


def test_a_new_drain_sets_the_plan_aside_and_it_comes_back(place: Place) -> None:
    place.holder().write(PLAN)
    for each in place.opened:
        each.release()
    plan = place.holder()
    aside = plan.archive(plan.load().plan)
    plan.write(OTHER)
    assert seen(place).plan == OTHER
    assert str(aside).partition("?")[0].rpartition("/")[2].startswith("orders.")
    assert DRAIN in str(aside)
    plan.rollback(OTHER, aside)
    assert seen(place).plan == PLAN


def test_a_topic_that_the_brokers_know_only_after_a_while_is_waited_for(
    bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, topic = [], Cluster.topic

    def slow(cluster: Cluster, name: str, *given: Any) -> TopicInfo:
        looks.append(name)
        if len(looks) < 4:
            raise TopicMissing(f"topic {name} does not exist", hint="")
        return topic(cluster, name, *given)

    monkeypatch.setattr(Cluster, "topic", slow)
    settings = ClientSettings.load(bootstrap)
    plan = plan_at(f"kafka://{topic_name}/orders.indexer", client=lambda: settings)
    plan.acquire()
    plan.write(PLAN)
    assert plan.load().plan == PLAN
    plan.release()


def test_the_first_plan_of_a_drain_that_could_not_begin_is_removed(place: Place) -> None:
    plan = begun(place)
    plan.rollback(PLAN, None)
    assert not place.process().exists
    plan.release()
    again = place.holder()
    again.write(OTHER)
    assert seen(place).plan == OTHER


def test_a_resume_that_could_not_begin_leaves_the_plan_as_it_was(place: Place) -> None:
    begun(place, 1)
    arrives(place, merged(RECORDS[:1]))
    place.die(place.opened[0])
    plan = place.holder()
    before = plan.load()
    resumed = changed(before.plan, generation=9)
    plan.write(resumed)
    plan.restore(before, resumed)
    found = seen(place)
    assert found.plan == changed(before.plan, generation=9)
    assert not found.torn


def test_a_plan_that_changed_meanwhile_is_refused_by_the_name_of_who_has_it(place: Place) -> None:
    plan = begun(place)
    known = plan.load()
    plan.write(at(8))
    with pytest.raises(PlanUnready, match="has changed in the meantime"):
        plan.ensure_unchanged(known)
