"""Options that come from variables, and the completion of a shell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command
from kafka.topic import Topic


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(10), partitions=4)


def test_all_that_a_drain_needs_can_be_in_variables(command: Command, topic: Topic) -> None:
    options = {
        "topic": topic.name,
        "group": command.group(topic),
        "handler": f"{command.handlers}:OnTheLoop",
        "bootstrap-server": topic.bootstrap,
        "from": "earliest",
        "concurrency": "7",
        "plan": "elsewhere.json",
        "partition": "0 2",
        "client-property": "isolation.level=read_uncommitted",
        "set": f"record={command.record.path} pause_ms=1",
        "output": "json",
    }
    env = {f"DRAINER_{name.upper().replace('-', '_')}": value for name, value in options.items()}
    action = command("run", "--dry-run", env=env).answer
    assert {n: part["end"] for n, part in action["partitions"].items()} == {"0": 10, "2": 10}
    shown = [action[name] for name in ("concurrency", "plan", "isolation")]
    assert shown == [7, "elsewhere.json", "read_uncommitted"]
    assert command("run", "-c", "3", "--dry-run", env=env).answer["concurrency"] == 3
    command("run", "--yes", env=env)
    assert len(command.record.done()) == 40
    assert re.fullmatch(r"drainer \d+\.\d+\S*\n", command("--version").out)


def completed(command: Command, words: str) -> list[str]:
    env = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    env |= command.env | {"_DRAINER_COMPLETE": "complete_bash"}
    script = Path(sys.executable).with_name("drainer")
    ended = subprocess.run([script], env=env, cwd=command.folder, capture_output=True, check=True)
    assert not ended.stderr
    return ended.stdout.decode().split()


@pytest.mark.long
def test_the_completion_reads_the_cluster_and_the_folder(command: Command, topic: Topic) -> None:
    group = command.group(topic)
    command("run", *command.what(topic, "count"), "--from", "earliest", "--yes")
    run = f"drainer run -b {topic.bootstrap}"

    assert completed(command, f"{run} --topic {topic.name[:-2]}") == [topic.name]
    assert completed(command, f"{run} --group {group[:-1]}") == [group]
    assert completed(command, f"drainer resume {topic.name}") == [f"{topic.name}.{group}.plan.json"]
    assert completed(command, "drainer run -b localhost:1 --topic o") == [], "without a cluster"


@pytest.mark.long
def test_the_completion_reads_the_client_file_that_the_profile_names(
    command: Command, topic: Topic
) -> None:
    profile, client = command.folder / "staging.toml", command.folder / "client.properties"
    client.write_text(f"bootstrap.servers={topic.bootstrap}\n")
    profile.write_text(f'client-config = "{client}"\n')
    words = f"drainer --profile {profile} inspect --topic {topic.name[:-2]}"

    assert completed(command, words) == [topic.name]
