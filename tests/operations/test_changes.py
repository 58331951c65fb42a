"""What has changed since a plan was made and keeps no drain from going on, and notes at its end."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from drainer.operations.examine import changes
from kafka.topic import WAIT_S
from operations.conftest import Story


def add_partitions(story: Story, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": story.topic.bootstrap, "log_level": 0})
    asked = admin.create_partitions([NewPartitions(story.topic.name, count)])
    asked[story.topic.name].result(WAIT_S)


def test_partitions_that_the_topic_has_got_since_are_named(story: Story) -> None:
    story.write_plan(20)
    assert changes(story.cluster, story.file.load().plan, {0: 20}) == []
    add_partitions(story, 3)

    prepared = story.prepared_to_resume()
    summary = story.drain(prepared)

    told = "has got partitions 1 to 2 since the plan was made"
    assert [text for text in prepared.action.warnings if told in text]
    assert [text for text in summary.notes if told in text]
    assert summary.exit_code == 0


def test_partitions_that_were_left_out_on_purpose_are_not_among_them(story: Story) -> None:
    add_partitions(story, 3)
    plan = story.prepared(partitions=(0,)).plan
    assert set(plan.partitions) == {0}
    assert changes(story.cluster, plan, {0: None}) == []


def test_a_finished_drain_says_until_when_its_offsets_stand(story: Story) -> None:
    """Of a group without former members they are kept from their commit on, else from when its
    last consumer left, and no broker tells when that was."""
    story.put_group(10)
    [note] = story.drain(story.prepared()).notes
    assert "stands at least until" in note

    story.topic.live_member(story.group).close()
    story.topic.produce(["more"])
    story.file.path.unlink()
    [note] = story.drain(story.prepared()).notes
    assert f"group {story.group} stand until" in note
    assert "at most" in note
