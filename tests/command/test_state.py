"""A drain whose tasks wrote what they finished is resumed by one process, with all they told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import changed, counts, progress_at
from command.conftest import operations
from command.process import FAST, ON_THE_LOOP, Command
from command.record import every_place
from drainer.core.merge import Record
from drainer.errors import LockLost, StateLost
from drainer.model.account import StateReference
from drainer.model.claims import Claim, key_hash
from drainer.spark.lease import LOCAL
from drainer.spark.records import TaskRecords
from drainer.spark.sharding import Sharding
from drainer.spark.state import Attempt, State
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic

MESSAGES = 60
SHARE = Claim(0, 2)


def interrupted(command: Command, topic: Topic) -> tuple[Path, State]:
    """A drain of which nothing is done, whose driver has died, and whose tasks write to a state."""
    running = command.begin(topic, *FAST, handler=ON_THE_LOOP, gate=str(command.home / "gate"))
    command.wait_for(running, "begun", 1)
    running.kill()
    path = command.plan(topic)
    file = PlanFile(path)
    plan = file.load().plan
    state = State.open(f"{path}.state", plan.terms.drain_id)
    state.begin_epoch(1, LOCAL)
    reference = StateReference(state.uri, 1, 1)
    file.write(changed(plan, state=reference, generation=plan.account.generation + 1))
    file.remove_journals()
    command.record.path.unlink()
    return path, state


def in_share(values: list[str], offsets: range) -> set[tuple[int, int, int]]:
    return {
        (0, offset, index)
        for offset in offsets
        for index, key in enumerate(json.loads(values[offset]))
        if key_hash(key) % SHARE.of == SHARE.number
    }


def report(records: TaskRecords, values: list[str], end: int) -> None:
    count = len(in_share(values, range(end)))
    progress = progress_at(end, messages=counts(done=end), sub_messages=counts(done=count))
    records.append(Record({0: progress}))


def resume(command: Command, path: Path) -> list[str]:
    return ["resume", str(path), "--yes", *FAST, *command.options()]


def test_what_tasks_told_is_not_handled_again(command: Command) -> None:
    values = operations(MESSAGES)
    topic = command.topic(values)
    path, state = interrupted(command, topic)
    task = Attempt(1, 1, 0, 0)
    records = state.begin(task, Sharding(SHARE.of), {0: 0})
    records.go_on_from(state.revoke_lease(task, LOCAL))
    report(records, values, 20)

    running = command.start(*resume(command, path), "-o", "json")
    running.prints("waiting until the tasks of the former driver have ended")
    report(records, values, 30)  # it has not heard yet
    with pytest.raises(LockLost, match="another driver"):
        state.ensure_newest(task)
    records.end()
    answer = running.ends(0).answer

    printed = in_share(values, range(30))
    assert set(command.record.done()) == every_place(values) - printed
    command.record.check_order()
    assert answer["sub_messages"]["done"] == 2 * MESSAGES
    assert answer["messages"]["done"] == MESSAGES
    assert command.committed(topic) == {0: MESSAGES}
    assert PlanFile(path).load().plan.account.state is None
    assert not (
        path.with_name(f"{path.name}.state") / PlanFile(path).load().plan.terms.drain_id
    ).exists()
    with pytest.raises(StateLost):  # it wakes up, hours later
        report(records, values, 31)
