"""Beginnings of a redrive whose topic or group is not what it was the last time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.letters import Sample
from drainer.errors import NotADeadLetter, PlanRefused, Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import find_letter
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model.settings import AfterDead, FailureSettings, LocalSettings, OnFailure
from drainer.model.status import Summary
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.operations.drain import drain
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request
from drainer.store.plan_file import PlanFile
from kafka.sender import write_letters
from kafka.topic import Topic, await_coordinators, eventually
from scenarios.brokers import Broker, delete_group

DEAD_AGAIN = FailureSettings(retries=0, on_failure=OnFailure.DEAD_LETTER)
HANDLER = """
handled, bad = [], []

def open(context):
    if "closed" in bad:
        raise RuntimeError("not now")

async def handle(sub):
    if sub.message.offset in bad:
        raise ValueError("no")
    handled.append(sub.message.offset)
"""


@dataclass
class Redrives:
    """A topic of dead letters, and redrives of it one after the other."""

    cluster: Cluster
    topic: Topic
    folder: Path
    output: list[str] = field(default_factory=list)

    @property
    def file(self) -> PlanFile:
        return PlanFile(self.folder / "redrive.json")

    def die(self, *offsets: int, key: str = "doc", decoded: bool = False) -> None:
        """Sub-messages of these offsets were given up on; or messages, once they were decoded."""
        subs = [SubMessage(key, {"n": offset}) for offset in offsets]
        for sub, offset in zip(subs, offsets, strict=True):
            sub.message = Message(Origin("orders", "orders-id", 0), offset, b"k", b"v", 1, ())
            sub.index = 0
            sub.message.decoded = sub.payload if decoded else None
        write_letters(self.topic, [Sample(sub=sub) for sub in subs])

    @property
    def committed(self) -> int | None:
        """Committed offset of the group in the first partition."""
        name = self.topic.name
        return self.cluster.committed(default_group(name), name, (0,))[0]

    @property
    def end(self) -> int:
        return self.cluster.log_bounds(self.topic.name, (0,), "read_committed")[0].end

    def prepared(
        self,
        *sub_keys: str,
        failures: FailureSettings = DEAD_AGAIN,
        plan: str = "redrive.json",
        group: str | None = None,
    ) -> Prepared:
        source = self.folder / f"handler_{uuid.uuid4().hex}.py"
        source.write_text(HANDLER)
        request = Request(
            topic=self.topic.name,
            group=group or default_group(self.topic.name),
            handler=load_handler(str(source)),
            failures=failures,
            plan_path=self.folder / plan,
        )
        meant = RedriveSettings(LetterFilter(sub_keys=sub_keys))
        return prepare_redrive(self.cluster, request, meant, LocalSettings())

    def redrive(self, *sub_keys: str, plan: str = "redrive.json") -> list[int]:
        """Dead letters that the handler got."""
        prepared = self.prepared(*sub_keys, plan=plan)
        self.output = list(prepared.action.warnings)
        summary = self.drain(prepared)
        assert summary.exit_code == 0
        handled: list[int] = prepared.handler.target.handled
        return handled

    def drain(self, prepared: Prepared) -> Summary:
        return drain(self.cluster, prepared, LocalSettings())


@pytest.fixture
def redrives(
    cluster: Cluster, bootstrap: str, topic_name: str, tmp_path: Path
) -> Iterator[Redrives]:
    topic = Topic(bootstrap, topic_name)
    cluster.group(default_group(topic_name))  # waits for its coordinator
    yield Redrives(cluster, topic, tmp_path)
    topic.discard()


def test_a_redrives_own_group_begins_at_the_earliest_letter_without_a_warning(
    redrives: Redrives,
) -> None:
    redrives.die(0, 1)
    warnings = redrives.prepared().action.warnings
    assert not any("committed offset" in warning for warning in warnings)
    prepared = redrives.prepared(group="mistyped")
    assert any("mistyped does not exist" in each for each in prepared.action.warnings)


def test_the_preview_says_of_how_many_sub_messages_the_letters_are(redrives: Redrives) -> None:
    redrives.die(0, 1)
    assert redrives.prepared().action.notes == ()
    redrives.die(1)
    (note,) = redrives.prepared().action.notes
    assert note == "3 letters of 2 sub-messages: a kill left some twice"


def test_without_a_format_the_preview_warns_of_letters_that_were_decoded(
    redrives: Redrives,
) -> None:
    redrives.die(0)
    redrives.die(1, 2, decoded=True)
    assert redrives.redrive() == [0, 1, 2]
    assert "without --value-format the handler gets bytes for 2 letters" in redrives.output


@pytest.mark.long
def test_a_partition_that_was_added_is_redriven_and_nothing_else_again(redrives: Redrives) -> None:
    redrives.die(0, key="other")
    redrives.die(1)
    assert redrives.redrive("doc") == [1]
    redrives.topic.grow(2)
    eventually(lambda: len(redrives.cluster.topic(redrives.topic.name).partitions) == 2)
    redrives.topic.produce(["no letter"], partition=1)

    assert redrives.redrive() == [0]
    group, name = default_group(redrives.topic.name), redrives.topic.name
    assert redrives.cluster.committed(group, name, (0, 1)) == {0: 5, 1: 2}
    redrives.die(2)
    assert redrives.redrive(plan="another.json") == [2]


@pytest.mark.long
def test_letters_are_redriven_that_came_after_a_new_leader(
    own_broker: Broker, topic_name: str, tmp_path: Path
) -> None:
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    with Cluster.connect(settings, 60) as cluster:
        redrives = Redrives(cluster, topic, tmp_path)
        redrives.die(0, key="other")
        redrives.die(1)
        assert redrives.redrive("doc") == [1]
    own_broker.kill()
    own_broker.start()
    with Cluster.connect(settings, 60) as cluster:
        await_coordinators(cluster)
        redrives = Redrives(cluster, topic, tmp_path)
        redrives.die(2)
        redrives.die(3, key="other")
        assert redrives.redrive("doc") == [2]
        assert redrives.redrive() == [0, 3]


def test_letters_that_were_deleted_are_passed_over_and_reported(redrives: Redrives) -> None:
    redrives.die(0, 1, key="other")
    redrives.die(2)
    redrives.die(3, key="other")
    assert redrives.redrive("doc") == [2]
    redrives.topic.delete_before(3)

    assert redrives.redrive() == [3]
    assert [text for text in redrives.output if "offsets 0-1 of partition 0" in text]
    assert redrives.file.load().plan.account.complete


@pytest.mark.long
def test_letters_that_were_deleted_before_any_redrive_saw_them_are_reported_too(
    redrives: Redrives,
) -> None:
    redrives.die(0)
    assert redrives.redrive() == [0]
    redrives.die(1, 2)  # behind two receipts
    redrives.topic.delete_before(4)

    assert redrives.redrive() == [2]
    assert [text for text in redrives.output if "to 3)" in text]


def test_a_plain_resume_does_not_pass_over_what_was_deleted(redrives: Redrives) -> None:
    redrives.die(0, key="other")
    redrives.die(1)
    redrives.redrive("doc")
    redrives.topic.delete_before(1)

    with pytest.raises(PlanRefused, match="retention deleted") as caught:
        prepare_resume(redrives.cluster, redrives.file, redrives.file.load(), LocalSettings())
    assert "drainer redrive" in (caught.value.hint or "")
    assert "drainer run" not in (caught.value.hint or "")


def test_with_another_plan_a_redrive_leaves_out_what_earlier_ones_finished(
    redrives: Redrives,
) -> None:
    redrives.die(0)
    redrives.die(1, key="other")
    redrives.die(2)
    redrives.die(3, key="third")
    assert redrives.redrive("doc") == [0, 2]
    assert redrives.redrive("third", plan="another.json") == [3]
    redrives.die(4)

    assert redrives.redrive() == [1, 4]
    assert redrives.committed == redrives.end - 1  # the last receipt
    assert redrives.prepared(plan="fourth.json").action.offsets == 0
    # As brokers do after days.
    delete_group(redrives.cluster.settings, default_group(redrives.topic.name))
    redrives.die(5)
    assert redrives.redrive(plan="fifth.json") == [5]


def test_letters_can_not_wait_behind_one_that_comes_behind_them(redrives: Redrives) -> None:
    redrives.die(0, 1)
    parks = FailureSettings(retries=0, on_failure=OnFailure.DEAD_LETTER, after_dead=AfterDead.PARK)

    with pytest.raises(Refused, match="behind those that waited for it") as caught:
        redrives.prepared(failures=parks)
    assert "--on-failure park" in (caught.value.hint or "")


@pytest.mark.long
def test_a_resumed_redrive_writes_to_its_own_topic_whatever_was_requested_meanwhile(
    redrives: Redrives,
) -> None:
    redrives.die(0, key="other")
    redrives.redrive("doc")
    parked = FailureSettings(retries=0, on_failure=OnFailure.PARK)

    def resumed(failures: FailureSettings) -> Prepared:
        loaded = redrives.file.load()
        request = ResumeRequest(failures)
        return prepare_resume(redrives.cluster, redrives.file, loaded, LocalSettings(), request)

    redrives.drain(resumed(parked))
    topic = redrives.file.load().plan.terms.failures.dead_letter_topic
    again = FailureSettings(retries=0, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic=topic)

    assert resumed(again).plan.terms.failures.dead_letter_topic == redrives.topic.name
    assert resumed(again).action.makes_topic is None


@pytest.mark.long
def test_what_died_again_and_was_redriven_since_is_no_dead_letter_any_more(
    redrives: Redrives,
) -> None:
    redrives.die(0, key="other")
    redrives.die(1)
    prepared = redrives.prepared("doc")
    prepared.handler.target.bad.append(1)
    assert redrives.drain(prepared).exit_code == 6

    prepared = redrives.prepared("doc")
    summary = redrives.drain(prepared)

    assert prepared.handler.target.handled == [1]
    assert (summary.exit_code, summary.sub_messages.dead) == (0, 0)
    assert summary.conserved


@pytest.mark.long
def test_a_redrive_whose_handler_does_not_open_is_over(redrives: Redrives) -> None:
    redrives.die(0)
    prepared = redrives.prepared(plan="first.json")
    prepared.handler.target.bad.append("closed")
    with pytest.raises(Refused, match="not now"):
        redrives.drain(prepared)
    assert not (redrives.folder / "first.json").exists()

    assert redrives.redrive() == [0]


def test_a_resume_leaves_out_what_another_redrive_has_done_meanwhile(redrives: Redrives) -> None:
    redrives.die(0)
    redrives.die(1, 2, key="other")
    prepared = redrives.prepared(failures=FailureSettings(retries=0, on_failure=OnFailure.PARK))
    prepared.handler.target.bad += [0, 1]
    assert redrives.drain(prepared).exit_code == 5
    assert redrives.redrive("other", plan="elsewhere.json") == [1, 2]

    loaded = redrives.file.load()
    prepared = prepare_resume(redrives.cluster, redrives.file, loaded, LocalSettings())
    prepared.handler.target.bad.clear()
    prepared.handler.target.handled.clear()
    assert redrives.drain(prepared).exit_code == 0
    assert prepared.handler.target.handled == [0]
    assert redrives.file.load().plan.account.complete


@pytest.mark.long
def test_a_redrive_that_another_one_outran_is_not_resumed(redrives: Redrives) -> None:
    redrives.die(0, key="other")
    redrives.die(1)
    redrives.redrive("doc", plan="first.json")
    assert redrives.redrive() == [0]

    file = PlanFile(redrives.folder / "first.json")
    with pytest.raises(PlanRefused, match="something else moved it"):
        prepare_resume(redrives.cluster, file, file.load(), LocalSettings())


def test_a_receipt_is_no_letter(redrives: Redrives) -> None:
    redrives.die(0)
    redrives.redrive()
    with pytest.raises(NotADeadLetter, match="is the receipt of a redrive"):
        find_letter(redrives.cluster, redrives.topic.name, 0, 1)
