"""Where option values come from, and what a shell completes."""

from __future__ import annotations

import re
import subprocess

import pytest

from command.conftest import operations
from command.process import SCRIPT, Command
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic
from scenarios.trust.shells import SHELLS, press_tab


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


def test_the_version_is_printed(command: Command) -> None:
    assert re.fullmatch(r"drainer \d+\.\d+\.\d+\S*\n", command("--version").out)


def completed(command: Command, words: str) -> list[str]:
    env = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ended = subprocess.run(
        [SCRIPT],
        env=command.env | env | {"_DRAINER_COMPLETE": "complete_bash"},
        cwd=command.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not ended.stderr
    return ended.stdout.split()


def test_the_completion_knows_commands_and_options(command: Command) -> None:
    assert {"show", "verify", "undo"} <= set(completed(command, "drainer plan "))
    assert "--concurrency" in completed(command, "drainer run --conc")


def test_the_completion_reads_the_cluster_and_the_folder(command: Command, topic: Topic) -> None:
    group = command.group(topic)
    command("run", "--topic", topic.name, "--group", group, "--handler", "count", "--from",
            "earliest", "--yes", "-b", topic.bootstrap)  # fmt: skip
    run = f"drainer run -b {topic.bootstrap}"

    assert completed(command, f"{run} --topic {topic.name[:-2]}") == [topic.name]
    assert completed(command, f"{run} --group {group[:-1]}") == [group]
    assert completed(command, f"drainer resume {topic.name}") == [f"{topic.name}.{group}.plan.json"]
    assert completed(command, f"{run} --handler pri") == ["print"]


@pytest.mark.skipif("bash" not in SHELLS, reason="no bash")
def test_a_shell_runs_no_name_that_a_stranger_gave_to_a_group(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    for name in ("vil\\$(touch ran)", "vil`touch ran`", "vil\n$(touch ran)", "venings"):
        cluster.alter_committed(f"{topic.name}-e{name}", topic.name, {0: 0})
    line, shows = f"drainer inspect --group {topic.name}-e", f"{topic.name}-evenings"

    screen = press_tab("bash", command.folder, topic.bootstrap, line, shows)

    assert "evil" not in screen
    assert not (command.folder / "ran").exists()


def test_the_completion_reads_the_client_file_that_the_profile_names(
    command: Command, topic: Topic
) -> None:
    profile, client = command.folder / "staging.toml", command.folder / "client.properties"
    client.write_text(f"bootstrap.servers={topic.bootstrap}\n")
    profile.write_text(f'client-config = "{client}"\n')
    words = f"drainer --profile {profile} inspect --topic {topic.name[:-2]}"

    assert completed(command, words) == [topic.name]


def test_without_a_cluster_nothing_is_proposed(command: Command) -> None:
    assert completed(command, "drainer run -b localhost:1 --topic o") == []
