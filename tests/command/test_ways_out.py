"""Each hint of a refusal that names a command leads out: that command works, and what was refused
is not refused again for the same reason.

``SHOWN`` lists the places of such hints; one that is added needs a test here, or a word on the one
that shows it elsewhere.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import orjson
import pytest

from command.conftest import distinct
from command.process import Command
from docs.pages import ROOT, product
from kafka.topic import Topic, eventually

COUNT, BLOCKED_AT, BEGAN = 40, 20, 5
NAMES_COMMAND = re.compile(
    r"drainer (?:run|resume|plan|dead|redrive)\b|\bcommand\(|_undo\(|\.way\(|\{way\}"
)
SHOWN = {
    ("operations/examine.py", "_account"): "operations/test_moving.py",
    ("operations/examine.py", "_log"): "command/test_outside.py",
    ("operations/examine.py", "group_offsets"): "test_a_group_that_was_moved",
    ("operations/resume.py", "_ensure_same_split"): "command/test_first.py",
    ("operations/repeat.py", "_ensure_same"): "command/test_or_resume.py",
    ("operations/start.py", "_check_plan"): "command/test_plan_place.py",
    ("operations/start.py", "_check_committed"): "operations/test_beginning.py",
    ("store/journal.py", "records_since"): "of a journal without its plan: store/test_plan_file.py",
    ("loading/loader.py", "_find"): "operations/test_api.py",
    ("store/saved_plan.py", "no_plan"): "command/test_kill.py",
    ("cli/app.py", "_wrong"): "of an option that a resume lacks: cli_units/test_commands.py",
    ("cli/options.py", "unnamed"): "of a class of a program: cli_units/test_connecting.py",
    ("cli/steering.py", "_only_one"): "of no plan: no drain is running",
    ("cli/steering.py", "_not_settable"): "of an option of a resume: cli_units/test_values.py",
    ("control/server.py", "request"): "of a request by hand: control/test_socket.py",
    ("engine/control.py", "ended"): "of a drain that has just ended: engine/test_steering.py",
    ("operations/start.py", "_known_elsewhere"): "command/test_plan_place.py",
    ("store/plan_file.py", "acquire"): "of a plan in use: store/test_plan_file.py",
    ("letters/cli/dead.py", "_parse_place"): "command/test_dead.py",
    ("letters/receipts.py", "ensure_ended"): "letters/test_receipts.py, command/test_redrive.py",
    ("policy/dead_letter.py", "_split_headers"): "the same hint as that of _parse_place",
    ("store/saved_plan.py", "with_reachable_state"): "of Spark's state",
    ("store/saved_plan.py", "_reported"): "of Spark's state",
    ("store/saved_plan.py", "gone"): "of a plan that is moved meanwhile",
}


def hints_with_commands() -> Iterator[tuple[str, str]]:
    """The module and the function of each hint that names a command for plans and letters."""
    for path, tree in product().items():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for each in ast.walk(function):
                match each:
                    case ast.keyword(arg="hint", value=value):
                        pass
                    case ast.Assign(targets=[ast.Name("hint")], value=value):
                        pass
                    case _:
                        continue
                if NAMES_COMMAND.search(ast.unparse(value)):
                    yield str(path.relative_to(ROOT / "drainer")), function.name


def test_each_hint_that_names_a_command_is_followed_by_a_test() -> None:
    others = ("sandbox/", "spark/session/", "insight/")  # of no refusal of a plan
    found = {each for each in hints_with_commands() if not each[0].startswith(others)}
    assert found == set(SHOWN)


class Way:
    """A refusal with the commands that its hint names."""

    def __init__(self, command: Command, *words: str) -> None:
        self._command, self._words = command, words
        refused = command(*words, code=3)
        ends = r"(?:`|; |\. [A-Z]|\.$|$)"
        self.error, found = refused.error, re.findall(rf"drainer (.+?){ends}", refused.hint)
        self.named = [shlex.split(each) for each in found]

    def follow(self, *more: str) -> None:
        self._command(*self.named[0], *more)

    def leads_out(self) -> None:
        """Repeat what was refused: it works."""
        assert self.error not in self._command(*self._words).err


@pytest.fixture
def half(command: Command) -> Topic:
    """Two partitions, of which all but number 20 of the first is done; the drain was killed."""
    topic = command.topic(distinct(COUNT), partitions=2)
    command.cluster.alter_committed(command.group(topic), topic.name, {0: BEGAN, 1: BEGAN})
    running = command.begin(topic, "--from", "committed", gate=command.gate, gated=str(BLOCKED_AT))
    command.wait_for(running, "done", 2 * (COUNT - BEGAN) - 2)

    def written() -> list[int | None]:
        partitions = orjson.loads(command.plan(topic).read_bytes())["partitions"].values()
        return [each["committed"] for each in partitions]

    eventually(lambda: written() == [BLOCKED_AT] * 2, "the plan has what it committed", 30)
    running.kill()
    command.gate.touch()
    return topic


def resume(command: Command, topic: Topic) -> tuple[str, ...]:
    """Its words, with the handler that --yes does not confirm, and its options."""
    return (*command.resume_of(command.plan(topic)), *command.options())


@pytest.mark.parametrize(
    "moved", [pytest.param({0: BEGAN}, marks=pytest.mark.long), {0: COUNT, 1: 0}], ids=str
)
def test_a_group_that_was_moved_is_put_back_by_the_hint(
    command: Command, half: Topic, moved: dict[int, int]
) -> None:
    command.cluster.alter_committed(command.group(half), half.name, moved)
    way = Way(command, *resume(command, half))
    assert "something else moved it" in way.error

    way.follow("--yes")

    assert command.committed(half) == {0: BEGAN, 1: BEGAN}
    assert "already at its offsets" in command("plan", "undo", str(command.plan(half))).err
    command("plan", "verify", str(command.plan(half)))
    way.leads_out()
    assert command.committed(half) == {0: COUNT, 1: COUNT}
