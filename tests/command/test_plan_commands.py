"""``drainer plan``: a plan shown, verified and undone, and what is refused of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command.conftest import distinct
from command.process import ON_THE_LOOP, Command
from command.record import every_place
from kafka.topic import Topic, eventually

COUNT = 100
BLOCKED_AT = 50
BEGAN = 10


@pytest.fixture
def interrupted(command: Command) -> Topic:
    """A topic whose drain from offset 10 on was killed when all was done but number 50."""
    topic = command.topic(distinct(COUNT))
    command.cluster.alter_committed(command.group(topic), topic.name, {0: BEGAN})
    where = ("--from", "committed", "-c", "7")
    running = command.begin(topic, *where, gate=command.gate, gated=str(BLOCKED_AT))
    command.wait_for(running, "done", COUNT - BEGAN - 1)
    eventually(lambda: command.committed(topic) == {0: BLOCKED_AT}, "it has committed", 30)
    plan = command.plan(topic)
    for words in (command.resume_of(plan), ["plan", "undo", str(plan), "--yes"]):
        assert "another drainer process" in command(*words, code=3).error
    running.kill()
    command.gate.touch()
    return topic


def refuses(command: Command, plan: Path, *printed: str) -> None:
    """Ensure that no command acts on a plan, and that each prints why and a hint."""
    before = plan.read_bytes()
    named = ["--handler", f"{command.handlers}:{ON_THE_LOOP}"]
    acting = {"plan verify": [], "plan undo": ["--yes"], "resume": ["--yes", *named]}
    started = {
        name: command.start(*name.split(), str(plan), *more) for name, more in acting.items()
    }
    for name, running in started.items():
        outcome = running.ends(7 if "verify" in name else 3)
        for words in printed:
            assert words in outcome.out + outcome.err, name
        assert outcome.hint
    assert plan.read_bytes() == before


def test_a_plan_is_shown_verified_and_undone_and_a_resume_continues_from_it(
    command: Command, interrupted: Topic
) -> None:
    plan = str(command.plan(interrupted))
    outcome = command("plan", "show", plan)
    assert outcome.err == ""
    for printed in (
        "[10, 100)",
        f"drainer resume {plan}",
        "--concurrency 7",
        f"drainer plan undo {plan}",
    ):
        assert printed in outcome.out
    shown = command("plan", "show", plan, "-o", "json").answer
    assert shown["partitions"]["0"]["prior"] == BEGAN

    outcome = command("plan", "verify", plan, "-o", "json")
    assert (outcome.answer["status"], len(outcome.answer["checks"]) >= 7) == ("ok", True)
    for printed in ("digest", "the journal", "cluster", "topic", "pending", "members", "left it"):
        assert printed in outcome.out
    assert "passed" in outcome.err

    refused = command("plan", "undo", plan, code=3)
    assert f"partition 0: {BLOCKED_AT} -> {BEGAN}" in refused.err
    assert "--yes" in refused.hint
    reason = ("--reason", "ticket 8")
    answer = command("plan", "undo", plan, "--yes", *reason, "-o", "json").answer
    assert answer["status"] == "moved"
    last = json.loads(Path(plan).read_text())["history"][-1]
    assert (last["what"], last["reason"]) == ("undone", "ticket 8")
    assert "already at its offsets from before" in command("plan", "undo", plan).err
    assert command.committed(interrupted) == {0: BEGAN}
    assert "the group is where `plan undo` put it" in command("plan", "verify", plan).out
    resumed = command.resume(interrupted, gate=command.gate)
    assert "differs from the last one: concurrency 7 → 100" in " ".join(resumed.err.split())
    assert "concurrency 7 → 100; group at" in command("plan", "history", plan).out
    assert command.committed(interrupted) == {0: COUNT}
    places = every_place(distinct(COUNT - BEGAN), first=BEGAN)
    assert set(command.record.done()) == places


def test_no_command_acts_on_an_edited_plan_or_for_a_moved_group_or_beside_a_consumer(
    command: Command, interrupted: Topic
) -> None:
    consumer = interrupted.live_member(command.group(interrupted), "checkout-7")
    try:
        refuses(command, command.plan(interrupted), "checkout-7")
    finally:
        consumer.close()
    assert command.committed(interrupted) == {0: BLOCKED_AT}
    plan = command.plan(interrupted)
    for journal in plan.parent.glob(f"{plan.name}.journal-*"):
        journal.unlink()
    (warning,) = command("plan", "verify", str(plan), "-o", "json").answer["warnings"]
    assert "is damaged or missing: a resume repeats" in warning
    command.cluster.alter_committed(command.group(interrupted), interrupted.name, {0: 3})
    answer = command("plan", "verify", str(plan), "-o", "json", code=7).answer
    assert (answer["status"], answer["exit_code"]) == ("refused", 7)
    (failed,) = [check for check in answer["checks"] if not check["ok"]]
    assert "moved it" in failed["error"]
    plan.write_text(plan.read_text().replace(f'"prior": {BEGAN}', '"prior": 3'))
    refuses(command, plan, "edited or damaged", plan.name)
