"""Changes since a plan was made: those that stop no drain, and one that stops it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import changed
from drainer.model.account import Event, EventKind
from drainer.operations.examine import changes, examine
from drainer.operations.resume import resumed
from drainer.operations.start import Prepared
from drainer.store.plan_file import PlanFile
from drainer.store.saved_plan import LoadedPlan
from fake_kafka import FakeCluster, FakeKafka, Log
from kafka.topic import WAIT_S, eventually
from operations.conftest import Story
from view import samples


def test_partitions_that_come_after_the_plan_are_reported_before_and_during_a_drain(
    story: Story,
) -> None:
    story.write_plan(20)
    before = story.prepared_to_resume()
    assert changes(story.cluster, story.file.load().plan, {0: 20}) == []
    story.topic.grow(3)

    received = "got partitions 1 to 2 after the plan was made: without --follow, this drain leaves"
    warnings = story.prepared_to_resume().action.warnings
    assert [text for text in warnings if received in text]
    lines: list[str] = []
    assert story.drain(before, lines.append).exit_code == 0
    assert len([text for text in lines if "got partitions 1 to 2" in text]) == 1


def test_a_check_that_fails_for_a_partition_that_is_gone_leads_out() -> None:
    plan = samples.plan(2)
    kafka = FakeKafka("orders", plan.terms.topic_id, "reindexer", {0: Log()})
    cluster = FakeCluster(kafka, settings=None)  # type: ignore[arg-type]
    cluster.cluster_id = plan.terms.cluster_id
    *_, (_, error) = examine(cluster, LoadedPlan(Path("p"), plan, plan, 0, False, 1))
    assert str(error) == "topic orders has no partition 1 any more"
    assert error is not None
    assert "Start a new drain" in (error.hint or "")


def test_a_resume_that_takes_over_tasks_keeps_its_own_terms_and_event() -> None:
    seen = samples.plan()
    given = changed(seen, bootstrap_servers="other:9092", client_config="/etc/other.properties")
    event = Event(seen.account.updated, EventKind.RESUMED, "ana@db1")
    given = changed(given, history=(event,))
    prepared = Prepared(
        samples.action(plan=given),
        handler=None,  # type: ignore[arg-type]
        seen=LoadedPlan(Path("p"), seen, seen, 0, False, 1),
        policy=None,  # type: ignore[arg-type]
        file=PlanFile(Path("p")),
    )
    reported = changed(seen, parked_lanes=replace(seen.account.parked_lanes, total=1))

    plan = resumed(prepared, LoadedPlan(Path("p"), seen, reported, 1, False, 1)).plan

    assert (plan.account.updated, plan.account.history[-1]) == (
        seen.account.updated,
        event,
    )
    assert (plan.terms.bootstrap_servers, plan.terms.client_config) == (
        "other:9092",
        "/etc/other.properties",
    )


def test_a_transaction_that_ended_meanwhile_holds_nothing_back_at_the_end(story: Story) -> None:
    producer = story.topic.open_transaction(["late"])
    prepared = story.prepared()
    producer.abort_transaction(WAIT_S)
    eventually(
        lambda: not story.prepared().action.open_transactions, "the transaction's marker is written"
    )

    assert prepared.action.open_transactions
    assert story.drain(prepared).open_transactions == ()


def test_partitions_that_were_left_out_on_purpose_are_not_among_them(story: Story) -> None:
    story.topic.grow(3)
    plan = story.prepared(partitions=(0,)).plan
    assert set(plan.account.partitions) == {0}
    assert changes(story.cluster, plan, {0: None}) == []
