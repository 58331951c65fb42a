"""Where option values come from, and what a shell completes."""

from __future__ import annotations

import re
import subprocess

import pytest

from command.conftest import MakeTopic, operations
from command.process import SCRIPT, Command
from kafka.topic import Topic


@pytest.fixture
def topic(make_topic: MakeTopic) -> Topic:
    return make_topic(operations(10), partitions=4)


def test_all_that_a_drain_needs_can_be_in_variables(command: Command, topic: Topic) -> None:
    options = {
        "topic": topic.name,
        "group": command.group(topic),
        "handler": f"{command.handlers}:OnTheLoop",
        "bootstrap-server": topic.bootstrap,
        "from": "earliest",
        "concurrency": "7",
        "order": "key",
        "plan": "elsewhere.json",
        "partition": "0 2",
        "client-property": "isolation.level=read_uncommitted",
        "set": f"record={command.record.path} pause_ms=1",
        "json": "1",
    }
    env = {f"DRAINER_{name.upper().replace('-', '_')}": value for name, value in options.items()}
    action = command("run", "--dry-run", env=env).answer
    assert {n: part["end"] for n, part in action["partitions"].items()} == {"0": 10, "2": 10}
    shown = [action[name] for name in ("order", "concurrency", "plan", "isolation")]
    assert shown == ["key", 7, "elsewhere.json", "read_uncommitted"]
    assert command("run", "-c", "3", "--dry-run", env=env).answer["concurrency"] == 3
    command("run", "--yes", env=env)
    assert len(command.record.done()) == 40


def test_the_version_is_printed(command: Command) -> None:
    assert re.fullmatch(r"drainer \d+\.\d+\.\d+\S*\n", command("--version").out)


def test_the_completion_knows_commands_and_options(command: Command) -> None:
    def completed(words: str) -> list[str]:
        env = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return subprocess.run(
            [SCRIPT],
            env=command.env | env | {"_DRAINER_COMPLETE": "complete_bash"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.split()

    assert {"show", "verify", "undo"} <= set(completed("drainer plan "))
    assert "--concurrency" in completed("drainer run --conc")
