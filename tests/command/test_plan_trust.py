"""A plan is not believed for lying there: whose it is, where it connects, and what it loads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from command.conftest import operations
from command.process import Command
from kafka.topic import Topic
from privileges import UNPRIVILEGED, UNPRIVILEGED_NAME, for_root


def refusals(command: Command, plan: Path, topic: Topic) -> Iterator[str]:
    for words in (
        ["resume", str(plan), "--yes"],
        ["plan", "undo", str(plan), "--yes"],
        ["run", *command.what(topic), "--yes"],
    ):
        outcome = command(*words, code=3)
        assert f"`drainer plan take {plan}`" in outcome.hint
        yield outcome.error


@for_root
def test_the_plan_of_another_user_is_looked_at_taken_and_gone_on_with(command: Command) -> None:
    topic = command.topic(operations(30))
    plan = command.kill_amid(topic, mark="begun", gate=command.gate)
    theirs = [path for path in command.folder.iterdir() if path.name.startswith(plan.name)]
    assert len(theirs) > 1, "there is a journal"
    for path in theirs:
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    for error in refusals(command, plan, topic):
        assert f"belongs to {UNPRIVILEGED_NAME} (uid {UNPRIVILEGED})" in error
    shown = command("plan", "show", str(plan))
    assert f"warning: {plan} belongs to {UNPRIVILEGED_NAME}" in shown.err
    assert str(command.handlers) in shown.out
    assert "--yes" in command("plan", "take", str(plan), code=3).hint

    copy = command.folder / "my copy.json"
    printed = command("plan", "take", str(plan), "--to", str(copy), "--yes")
    assert printed.hint == f"Resume it: drainer resume '{copy}'"
    assert plan.stat().st_uid == UNPRIVILEGED
    shutil.copy(command.handlers, command.folder / "mine.py")
    command("plan", "take", str(plan), "--handler", "mine.py:OnTheLoop", "--yes")
    command.handlers.unlink()
    command("plan", "verify", str(plan))
    resumed = command("resume", str(plan), *command.options(), "--yes").err
    assert "mine.py:OnTheLoop" in resumed
    assert "code of" not in resumed, "it is the same"
    assert command.committed(topic) == {0: 30}
    assert len(command.record.done()) == 60
