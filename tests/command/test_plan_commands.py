"""``drainer plan``: a plan shown, verified and undone, and what is refused of it."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from builders import changed
from command.conftest import distinct
from command.process import FAST, Command
from command.record import every_place
from drainer.kafka.cluster import Cluster
from drainer.model.plan import OffsetPlan
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

COUNT = 100
BLOCKED_AT = 50
BEGAN = 10
ACTING = ("plan verify", "resume", "plan undo")


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(COUNT))


@dataclass(frozen=True)
class Stopped:
    """Leftovers of a drain from offset 10 on that stopped safely, all done but number 50."""

    plan: OffsetPlan
    record: bytes


@pytest.fixture(scope="module")
def stopped(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    topic = Topic(broker.bootstrap_servers, f"t-{uuid.uuid4().hex[:12]}")
    topic.produce(distinct(COUNT))
    command = Command(tmp_path_factory.mktemp("stopped"), topic.bootstrap)
    what = ["--from", str(BEGAN), "--grace", "100ms", *FAST]
    running = command.begin(topic, *what, gate=command.gate, gated=str(BLOCKED_AT))
    command.wait_for(running, "done", COUNT - BEGAN - 1)
    running.signal(signal.SIGINT)
    running.ends(4)
    topic.delete()
    return Stopped(read(command.plan(topic)), command.record.path.read_bytes())


@pytest.fixture
def interrupted(command: Command, topic: Topic, stopped: Stopped) -> Topic:
    """A topic as if that drain had been on it."""
    group = command.group(topic)
    command.cluster.alter_committed(group, topic.name, {0: BLOCKED_AT})
    command.record.path.write_bytes(stopped.record)
    plan = changed(
        stopped.plan,
        topic=topic.name,
        topic_id=command.cluster.topic(topic.name).topic_id,
        group=group,
        handler=f"{command.handlers}:OnTheLoop",
    )
    write(command, topic, plan, prior=BEGAN)
    return topic


def read(path: Path) -> OffsetPlan:
    return OffsetPlan.decode(path.read_bytes())


def write(command: Command, topic: Topic, plan: OffsetPlan, **part: Any) -> None:
    """Write a plan for the topic, whole and with its digest, with something else about its part."""
    partitions = {0: replace(plan.account.partitions[0], **part)}
    command.plan(topic).write_bytes(changed(plan, partitions=partitions).encode())


def refuses(
    command: Command,
    plan: Path,
    *printed: str,
    by: Collection[str] = ("plan verify",),
    verified: int = 3,
) -> None:
    """Ensure that commands refuse to act on a plan in these words, and leave it alone; one that can
    be read is ``verified`` with that exit code."""
    before = plan.read_bytes()
    started = {
        name: command.start(*name.split(), str(plan), *([] if "verify" in name else ["--yes"]))
        for name in by
    }
    for name, running in started.items():
        outcome = running.ends(verified if "verify" in name else 3)
        for words in printed:
            assert words in outcome.out + outcome.err, name
        assert outcome.hint
    assert plan.read_bytes() == before


# Show.


def test_show_tells_how_far_it_has_come_and_asks_no_broker(
    command: Command, interrupted: Topic
) -> None:
    plan = command.plan(interrupted)
    outcome = command("plan", "show", str(plan))
    assert outcome.err == ""
    assert "[10, 100)" in outcome.out
    assert f"drainer resume {plan}" in outcome.out
    assert f"drainer plan undo {plan}" in outcome.out
    answer = command("plan", "show", str(plan), "-o", "json").answer
    assert answer["partitions"]["0"]["prior"] == BEGAN
    assert answer["claims"]["all"]["0"]["sub_messages"]["done"] == COUNT - BEGAN - 1


# Verify.


def test_verify_says_each_thing_that_it_checked(
    command: Command, interrupted: Topic, cluster: Cluster
) -> None:
    outcome = command("plan", "verify", str(command.plan(interrupted)), "-o", "json")
    assert (outcome.answer["status"], len(outcome.answer["checks"]) >= 7) == ("ok", True)
    for printed in ("digest", "the journal", "cluster", "topic", "pending", "members", "left it"):
        assert printed in outcome.out
    assert "passed" in outcome.err
    command.cluster.alter_committed(command.group(interrupted), interrupted.name, {0: 3})
    answer = command("plan", "verify", str(command.plan(interrupted)), "-o", "json", code=7).answer
    assert (answer["status"], answer["exit_code"]) == ("refused", 7)
    (failed,) = [check for check in answer["checks"] if not check["ok"]]
    assert "moved it" in failed["error"]


# Refused, each with its own words.


def test_an_edited_plan_is_refused(command: Command, interrupted: Topic) -> None:
    plan = command.plan(interrupted)
    plan.write_text(
        plan.read_text().replace(f'"watermark": {BLOCKED_AT}', f'"watermark": {BLOCKED_AT + 1}')
    )
    refuses(command, plan, "edited or damaged", plan.name, by=ACTING, verified=7)


def test_a_plan_of_an_active_group_is_refused_and_its_members_named(
    command: Command, interrupted: Topic
) -> None:
    consumer = interrupted.live_member(command.group(interrupted), "checkout-7")
    try:
        refuses(command, command.plan(interrupted), "checkout-7", by=ACTING, verified=7)
    finally:
        consumer.close()
    assert command.committed(interrupted) == {0: BLOCKED_AT}


def test_a_plan_at_work_is_refused(command: Command, topic: Topic) -> None:
    running = command.begin(topic, *FAST, gate=command.gate, gated=str(BLOCKED_AT))
    eventually(lambda: command.committed(topic) == {0: BLOCKED_AT}, "it has committed", 30)
    for name in ("resume", "plan undo"):
        outcome = command(*name.split(), str(command.plan(topic)), "--yes", code=3)
        assert "another drainer process" in outcome.error, name
    command.gate.touch()
    running.ends(0)
    assert command.committed(topic) == {0: COUNT}


# Undo.


def test_undo_puts_the_group_back_and_a_resume_goes_on_from_there(
    command: Command, interrupted: Topic
) -> None:
    plan = str(command.plan(interrupted))
    refused = command("plan", "undo", plan, code=3)
    assert f"partition 0: {BLOCKED_AT} -> {BEGAN}" in refused.err
    assert "--yes" in refused.hint
    assert command("plan", "undo", plan, "--yes", "-o", "json").answer["status"] == "moved"
    assert "already at its offsets from before" in command("plan", "undo", plan).err
    assert command.committed(interrupted) == {0: BEGAN}
    command("plan", "verify", plan)
    command.resume(interrupted)
    assert command.committed(interrupted) == {0: COUNT}
    places = every_place(distinct(COUNT - BEGAN), first=BEGAN)
    assert sorted(command.record.done()) == sorted(places)
