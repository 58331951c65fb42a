"""Where option values come from, and what the command says of itself."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from command.conftest import MakeTopic, operations
from command.process import SCRIPT, Command
from kafka.topic import Topic

COMMANDS = [
    "run",
    "resume",
    "redrive",
    "dead list",
    "dead show",
    "limits",
    "limits compare",
    "limits cleanup",
    "plan show",
    "plan verify",
    "plan commit",
    "plan undo",
    "sandbox up",
    "sandbox status",
    "sandbox down",
    "demo",
]
NO_BROKER = ["--topic", "t", "--group", "g", "--handler", "count", "-b", "127.0.0.1:1"]
NAMED = ("--config", "drainer.toml")
WIDE = {"COLUMNS": "300", "TERM": "dumb"}


@pytest.fixture
def topic(make_topic: MakeTopic) -> Topic:
    return make_topic(operations(10), partitions=4)


def dry_run(command: Command, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    return command(*words, "run", "--dry-run", "--json", env=env).answer


def named(command: Command, topic: Topic) -> dict[str, str]:
    return {
        "topic": topic.name,
        "group": command.group(topic),
        "handler": "count",
        "bootstrap-server": topic.bootstrap,
        "from": "earliest",
    }


def as_variables(options: dict[str, str]) -> dict[str, str]:
    return {f"DRAINER_{name.upper().replace('-', '_')}": value for name, value in options.items()}


def write_profile(command: Command, options: dict[str, str], rest: str = "") -> Path:
    path = command.folder / "drainer.toml"
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in options.items()) + rest)
    return path


def test_every_option_can_be_a_variable(command: Command, topic: Topic) -> None:
    variables = as_variables(
        named(command, topic)
        | {
            "until": "8",
            "order": "key",
            "concurrency": "7",
            "buffer": "64MiB",
            "plan": "elsewhere.json",
            "plan-interval": "2s",
            "grace": "3s",
            "partition": "2",
            "client-property": "isolation.level=read_uncommitted",
            "dry-run": "1",
            "json": "1",
        }
    )
    answer = command("run", env=variables).answer
    assert answer["partitions"] == {"2": {"start": 0, "end": 8, "committed": None}}
    assert answer["order"] == "key"
    assert answer["concurrency"] == 7
    assert answer["plan"] == "elsewhere.json"
    assert answer["isolation"] == "read_uncommitted"


def test_a_variable_may_hold_several_values(command: Command, topic: Topic) -> None:
    variables = as_variables(named(command, topic) | {"partition": "0 3"})
    assert sorted(dry_run(command, env=variables)["partitions"]) == ["0", "3"]


def test_variables_reach_the_handler_and_say_yes(command: Command, topic: Topic) -> None:
    settings = named(command, topic) | {
        "handler": f"{command.handlers}:OnTheLoop",
        "set": f"record={command.record.path} pause_ms=1",
        "yes": "true",
    }
    command("run", env=as_variables(settings))
    assert len(command.record.done()) == 80


VARIABLES = {"master": "SPARK_MASTER"}  # a master says nothing by itself


def test_every_option_in_the_help_names_its_variable(command: Command) -> None:
    for name in ("run", "resume", "redrive"):
        text = command(name, "--help", env=WIDE).out
        options = set(re.findall(r"[│|] [*]? *--([a-z-]+)", text)) - {"help"}
        assert len(options) > 10
        # A variable is cut at spaces where an option repeats, and these have them inside.
        # Whoever accepts a gap means the one that was shown.
        for option in options - {"skip", "skip-key", "accept-gap"}:
            variable = VARIABLES.get(option, option.upper().replace("-", "_"))
            own = name == "redrive" and option in ("group", "plan")
            assert f"DRAINER_{'REDRIVE_' if own else ''}{variable}" in text


def test_a_profile_holds_for_every_drain(command: Command, topic: Topic) -> None:
    write_profile(command, named(command, topic), "concurrency = 7\npartition = [0, 3]\n")
    answer = dry_run(command, *NAMED)
    assert answer["concurrency"] == 7
    assert sorted(answer["partitions"]) == ["0", "3"]


def test_a_named_profile_goes_on_top(command: Command, topic: Topic) -> None:
    rest = 'concurrency = 7\n[profile.night]\nconcurrency = 70\norder = "key"\n'
    path = write_profile(command, named(command, topic), rest)
    assert dry_run(command, *NAMED)["concurrency"] == 7
    assert dry_run(command, *NAMED, "--profile", "night")["concurrency"] == 70
    variables = {"DRAINER_PROFILE": "night", "DRAINER_CONFIG": "drainer.toml"}
    assert dry_run(command, env=variables)["order"] == "key"
    elsewhere = path.rename(command.home / "other.toml")
    assert dry_run(command, "--config", str(elsewhere))["concurrency"] == 7


def test_a_profile_reaches_the_handler_and_says_yes(command: Command, topic: Topic) -> None:
    settings = named(command, topic) | {"handler": f"{command.handlers}:OnTheLoop"}
    write_profile(command, settings, f'yes = true\nset = ["record={command.record.path}"]\n')
    command(*NAMED, "run")
    assert len(command.record.done()) == 80


def test_a_file_that_is_only_found_here_runs_no_code_and_answers_nothing(
    command: Command, topic: Topic
) -> None:
    command.drain(topic)
    trap = command.home / "trap.py"
    trap.write_text(f"from pathlib import Path\nPath({str(command.home / 'ran')!r}).touch()\n")
    for key, value in (
        ("handler", str(trap)),
        ("yes", "true"),
        ("-X", "plugin.library.paths=/tmp/evil"),
        ("bootstrap-server", "127.0.0.1:1"),
    ):
        (command.folder / "drainer.toml").write_text(f'"{key}" = "{value}"\n')
        where = ["-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic)]
        outcome = command("inspect", *where, code=2)
        assert outcome.error.startswith(f"drainer.toml says {key}, ")
        assert "--config drainer.toml" in outcome.hint
    assert not (command.home / "ran").exists()


def test_it_is_told_in_one_line_where_options_come_from(command: Command) -> None:
    path = command.folder / "drainer.toml"
    path.write_text("concurrency = 7\n[profile.night]\ngrace = '2s'\n")
    run = ["run", *NO_BROKER, "--dry-run"]
    told = f"options are taken from {path}"

    by_default, by_name = command(*run, code=3), command("--profile", "night", *run, code=3)
    assert by_default.err.splitlines()[0] == told
    assert by_name.err.splitlines()[0] == f"{told} and its profile night"
    assert told not in command(*run, "--quiet", code=3).err
    as_log = command(*run, "--log-format", "json", code=3).err.splitlines()
    assert told in json.loads(as_log[0]).values()


def test_a_flag_wins_over_a_variable_and_that_over_the_file(command: Command, topic: Topic) -> None:
    write_profile(command, named(command, topic), "concurrency = 1\n")
    variable = {"DRAINER_CONCURRENCY": "2"}
    flag = ["run", "--dry-run", "--json", "--concurrency", "3"]
    assert dry_run(command, *NAMED)["concurrency"] == 1
    assert dry_run(command, *NAMED, env=variable)["concurrency"] == 2
    assert command(*NAMED, *flag, env=variable).answer["concurrency"] == 3


def test_a_profile_holds_for_the_plan_commands_too(command: Command, topic: Topic) -> None:
    command.drain(topic)
    write_profile(command, {"client-config": "missing.properties"})
    words = [*NAMED, "plan", "verify", str(command.plan(topic))]
    assert "missing.properties" in command(*words, code=2).error


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("concurency = 7", [], "concurency"),
        ("concurrency = many", [], "drainer.toml"),
        ('concurrency = "many"', [], "drainer.toml: concurrency"),
        ("[profile.day]", ["--profile", "night"], "night"),
        ("", ["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_a_profile_that_can_not_be_understood_is_a_usage_error(
    command: Command, text: str, words: list[str], told: str
) -> None:
    (command.folder / "drainer.toml").write_text(text)
    outcome = command(*words, "run", *NO_BROKER, "--dry-run", code=2)
    assert told in outcome.error
    assert outcome.out == ""
    answer = command(*words, "run", *NO_BROKER, "--dry-run", "--json", code=2).answer
    assert (answer["exit_code"], answer["error"]) == (2, outcome.error)


def test_a_value_that_can_not_be_understood_is_a_usage_error(command: Command) -> None:
    started = [
        (command.start("run", *NO_BROKER, *more), told)
        for *more, told in (
            ("--concurrency", "0", "--concurrency"),
            ("--concurrency", "many", "--concurrency"),
            ("--buffer", "much", "much"),
            ("--plan-interval", "often", "often"),
            ("--grace", "-1s", "-1s"),
            ("--order", "random", "--order"),
            ("--set", "nothing", "--set"),
            ("-X", "nothing", "name=value"),
            ("-X", "no.such.property=1", "no.such.property"),
            ("-X", "group.id=other", "group.id"),
            ("--client-config", "missing.properties", "missing.properties"),
            ("--colour", "--colour"),
        )
    ]
    for running, told in started:
        outcome = running.ends(2)
        assert told in outcome.err
        assert outcome.out == ""


def test_a_missing_option_is_named(command: Command) -> None:
    assert "--topic" in command("run", code=2).err
    what = ["run", "--topic", "t", "--group", "g", "--handler", "count"]
    outcome = command(*what, code=2)
    assert "-b HOST:PORT" in outcome.hint


def test_the_help_of_every_command_shows_an_example(command: Command) -> None:
    asked = {name: command.start(*name.split(), "--help", env=WIDE) for name in COMMANDS}
    for name, running in asked.items():
        outcome = running.ends(0)
        assert "Example" in outcome.out, name
        assert f"drainer {name}" in outcome.out
        assert outcome.err == ""


def test_the_help_of_a_group_lists_its_commands(command: Command) -> None:
    for name in ("", "plan ", "dead ", "limits ", "sandbox "):
        text = command(*name.split(), "--help", env=WIDE).out
        for found in COMMANDS:
            if found.startswith(name):
                assert found.removeprefix(name).split()[0] in text


def test_the_help_tells_the_exit_codes(command: Command) -> None:
    text = command("--help", env=WIDE).out
    for code in range(7):
        assert f"{code} " in text


def test_the_version_is_told(command: Command) -> None:
    assert re.fullmatch(r"drainer \d+\.\d+\.\d+\S*\n", command("--version").out)


def test_a_completion_script_is_given_for_the_shell(command: Command) -> None:
    given = subprocess.run(
        [SCRIPT],
        env=command.env | {"_DRAINER_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "_DRAINER_COMPLETE" in given.stdout
    assert given.stderr == ""


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

    assert {"show", "verify", "commit", "undo"} <= set(completed("drainer plan "))
    assert "--concurrency" in completed("drainer run --conc")
