"""A plan is not believed for lying there: whose it is, and what code it names."""

from __future__ import annotations

import os
import shlex
import shutil

from command.conftest import operations
from command.process import ON_THE_LOOP, Command
from privileges import UNPRIVILEGED, UNPRIVILEGED_NAME, for_root

SHORT = ("-X", "session.timeout.ms=1500")


@for_root
def test_no_command_acts_on_another_user_s_plan_but_its_copy_is_resumed(command: Command) -> None:
    topic = command.topic(operations(30))
    plan = command.kill_amid(topic, *SHORT, mark="begun", gate=command.gate)
    resume = command.resume_of(plan)
    theirs = [path for path in command.folder.iterdir() if path.name.startswith(plan.name)]
    assert len(theirs) > 1, "there is a journal"
    for path in theirs:
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    acting = (["plan", "show", str(plan)], ["plan", "undo", str(plan), "--yes"])
    for words in (resume, ["run", *command.what(topic), "--yes"], *acting):
        outcome = command(*words, code=3)
        assert f"belongs to {UNPRIVILEGED_NAME} (uid {UNPRIVILEGED})" in outcome.error
        assert "copy it and its journals into a folder that only you can write" in outcome.hint

    mine = command.folder / "mine"
    mine.mkdir()
    for path in (*theirs, command.handlers):
        shutil.copy(path, mine)
    command.handlers.unlink()
    named = ("--handler", f"mine/{command.handlers.name}:{ON_THE_LOOP}")
    more = (*named, *SHORT, *command.options(), "--yes")
    resumed = command("resume", str(mine / plan.name), *more).err
    assert f"{mine / command.handlers.name}:{ON_THE_LOOP}" in resumed
    assert "code of" not in resumed, "it is the same"
    assert command.committed(topic) == {0: 30}
    assert len(command.record.done()) == 60


def test_yes_confirms_no_handler_that_only_the_plan_names(command: Command) -> None:
    topic = command.topic(operations(3))
    command.drain(topic, "--retries", "0", code=5, fail="0/1/0")
    plan, handler = command.plan(topic), f"{command.handlers}:{ON_THE_LOOP}"
    done = len(command.record.done())
    for more in ([], ["--dry-run"]):
        refused = command("resume", str(plan), "--yes", *command.options(), *more, code=3)
        assert handler in refused.err.partition("error:")[0], "it is shown"
        assert refused.hint == f"If this is right, add --handler {handler}."
    assert len(command.record.done()) == done

    named = shlex.split(refused.hint.removesuffix("."))[-2:]
    command("resume", str(plan), "--yes", *command.options(), *named)
    command.ensure_drained(topic)
