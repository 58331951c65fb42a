"""Rules of every command: examples, variables, and usage errors before it connects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drainer.cli.app import PANELS, app
from drainer.cli.declared import declared_by
from drainer.store.plan_file import PlanFile
from drainer.view.terminal import Form
from view.samples import plan

COMMAND = typer.main.get_command(app)
NO_BROKER = ["--topic", "t", "--group", "g", "--handler", "count", "-b", "127.0.0.1:1"]
# A variable is cut at spaces where an option repeats, and expressions have them inside. The others
# accept a risk of one run.
WITHOUT_VARIABLE = {
    "--skip",
    "--key",
    "--first",
    "--divert",
    "--only",
    "--accept-gap",
    "--accept-repeats",
    "--same-split",
    "--mixed",
    "--no-commit",
    "--tune",
    "--reason",
    "--yes",
    "--help-all",
    "--help",
}


def commands(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, *words, name)
    if not getattr(command, "commands", {}):
        yield " ".join(words), command


def test_no_two_options_of_a_command_have_one_name() -> None:
    for name, command in commands(COMMAND):
        words = [word for each in command.params for word in (*each.opts, *each.secondary_opts)]
        assert len(words) == len(set(words)), name


def test_every_command_that_prints_facts_takes_a_form() -> None:
    for name, command in commands(COMMAND):
        takes = any("-o" in each.opts for each in command.params)
        assert takes == (name not in ("demo", "sandbox down")), name


@pytest.mark.parametrize("form", [None, *Form])
def test_a_result_goes_to_stdout_in_each_form(tmp_path: Path, form: Form | None) -> None:
    path = tmp_path / "orders.plan.json"
    path.write_bytes(plan(20).encode())
    path.chmod(0o600)

    found = CliRunner().invoke(app, ["plan", "show", str(path), *(["-o", form] if form else [])])

    assert found.exit_code == 0
    assert all(f"90{n:02}" in found.stdout for n in range(20)), "a row for each partition"
    verdict = "at most 79,170 offsets left"
    assert (verdict in found.stdout, verdict in found.stderr) == (form is None, form is not None)


def test_every_command_shows_an_example() -> None:
    for name, command in commands(COMMAND):
        assert "Example" in command.help, name
        assert f"drainer {name}" in command.help


def test_a_default_is_shown_as_it_would_be_typed() -> None:
    for name, command in commands(COMMAND):
        for each in declared_by(command).values():
            if each.default_text is not None and not each.is_flag and each.word != "--concurrency":
                assert each.parse(each.default_text) == each.default, (name, each.word)


def test_a_variable_means_the_same_in_every_command() -> None:
    flags: dict[str, bool] = {}
    for name, command in commands(COMMAND):
        for each in declared_by(command).values():
            if each.variable is not None:
                known = flags.setdefault(each.variable, each.is_flag)
                assert known == each.is_flag, (name, each.word)


def test_a_short_help_fits_a_screen() -> None:
    for name in ("run", "resume", "redrive", "estimate", "inspect", "limits"):
        shown = [each for each in COMMAND.commands[name].params if not each.hidden]  # type: ignore[attr-defined]
        assert len(shown) <= 18, name


def test_help_fits_80_columns_and_has_no_types_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short help has some of these rows, without variables; test_profile.py has its rules."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    for name, _ in commands(COMMAND):
        text = CliRunner().invoke(app, [*name.split(), "--help-all"]).stdout
        assert max(map(len, text.splitlines()), default=0) <= 80, name
        for wrong in ("…", "<bool>", "<int>", "<str>", "<path>", "list["):
            assert wrong not in text, name


@pytest.mark.parametrize("name", ["run", "resume", "redrive"])
def test_every_option_can_be_a_variable_of_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = COMMAND.commands[name]  # type: ignore[attr-defined]
    context = command.make_context(name, [], resilient_parsing=True)
    for option in command.params:
        if option.param_type_name == "argument":
            continue
        word = re.sub("^--(?=master)", "--spark-", option.opts[0])
        own = "REDRIVE_" if name == "redrive" and word in ("--group", "--plan") else ""
        variable = f"DRAINER_{own}{word.strip('-').upper().replace('-', '_')}"
        monkeypatch.setenv(variable, "x")
        read = option.resolve_envvar_value(context)
        named_again = name == "resume" and word in ("--handler", "--value-format")
        assert (read == "x") == (word not in WITHOUT_VARIABLE and not named_again), (variable, read)


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("run", "missing --topic, --group, --handler, --bootstrap-server",
         "Add --topic NAME --group NAME --handler REFERENCE --bootstrap-server HOST:PORT"),
        ("run --group g -X a=b", "missing --topic, --handler", "--handler REFERENCE: see"),
        ("certify", "missing HANDLER, --topic, --bootstrap-server",
         "Add HANDLER --topic NAME --bootstrap-server HOST:PORT"),
        ("plan verify", "missing PLAN", "Add PLAN: see `drainer plan verify --help`"),
        ("set", "missing PLAN, NAME=VALUE...", "Add PLAN NAME=VALUE..."),
        ("set concurrency=10", "missing PLAN", "Add PLAN: see"),
        ("set my.plan.json", "missing NAME=VALUE...", "Add NAME=VALUE...: see"),
        ("run --tpoic t", "no such option: --tpoic", "Did you mean --topic"),
        ("run --topic", "option '--topic' requires an argument", "`drainer run --help`"),
        ("run --topic t --group g --handler count --tune order=no", "--tune order 'no' is", "one"),
        ("run --topic t --group g --handler count --tune max-outge=1h", "--tune 'max-outge' is not",
         "Did you mean --tune max-outage?"),
        ("run --topic t --group g --handler count --tune rate=5", "--tune 'rate' is not", "--rate"),
        ("run --topic t --group g --handler count --tune s3cr3t", "--tune must be NAME=VALUE", "="),
        ("run --topic t --group g --handler count --tune on-split-failure",
         "--tune must be NAME=VALUE", "Write it as on-split-failure=…."),
        ("run --max-outage 1h", "no such option: --max-outage", "Did you mean --tune max-outage?"),
        ("run --topic t --debug", "no such option: --debug", "`drainer --debug …`"),
        ("ps -o no", "--output 'no' is not one of", "one of them"),
        ("ps folder", "unexpected: folder", "`drainer ps --help`"),
        ("run --profile p", "no such option: --profile", "the command: `drainer --profile …`"),
        ("plan show .", "'.' is not the name of a file", "TOPIC.GROUP.plan.json"),
        ("run --topic t --group g --handler count -b b:1 --plan=", "--plan '' is not", "Name the"),
        ("status", "no such command 'status'", "Did you mean `drainer ps`?"),
        ("list", "no such command 'list'", "Did you mean `drainer ps` or `drainer dead list`?"),
        ("undo", "no such command 'undo'", "Did you mean `drainer plan undo`?"),
        ("plan stop", "no such command 'stop'", "Did you mean `drainer stop`?"),
        ("resume", "missing PLAN", "`drainer ps` lists the drains of this machine."),
        ("stop", "missing PLAN", "`drainer ps` lists the drains of this machine."),
        ("dead lst", "no such command 'lst'", "Did you mean 'list'?"),
        ("dance", "no such command 'dance'", "`drainer --help`"),
        ("--loud run", "no such option: --loud", "`drainer --help`"),
        ("--profile p", "the profile ", "Write it, one option a line"),
    ],
)  # fmt: skip
def test_a_usage_error_is_reported_as_every_error(words: str, error: str, hint: str) -> None:
    found = CliRunner().invoke(app, words.split(), prog_name="drainer")
    first, second = found.stderr.splitlines()
    assert (found.exit_code, found.stdout) == (2, "")
    assert first.startswith(f"error: {error}")
    assert second.startswith("hint: ")
    assert hint in second


@pytest.mark.parametrize("word", ["--topic", "-t", "--from", "--key", "--split", "--barrier"])
def test_a_resume_says_of_an_option_of_run_that_the_plan_fixes_it(word: str) -> None:
    found = CliRunner().invoke(app, ["resume", "my.plan.json", word, "x"], prog_name="drainer")
    first, second = found.stderr.splitlines()
    named = "--topic" if word == "-t" else word
    assert (found.exit_code, first) == (2, f"error: no such option: {word}")
    assert second.startswith(f"hint: The plan fixes {named}: leave it out.")
    assert "start again with `drainer run` and another --plan" in second


@pytest.mark.parametrize("word", ["--plan", "--latency"])
def test_a_resume_does_not_say_that_a_plan_fixes_what_is_in_no_plan(word: str) -> None:
    found = CliRunner().invoke(app, ["resume", "my.plan.json", word, "x"], prog_name="drainer")
    assert "The plan fixes" not in found.stderr


def test_without_a_plan_the_known_ones_are_named_and_those_in_this_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.indexer.plan.json").touch()
    names = " PLAN is one of orders.indexer.plan.json"
    for words in ("resume", "plan undo"):
        assert names in CliRunner().invoke(app, words.split(), prog_name="drainer").stderr
    found = CliRunner().invoke(app, ["stop"], prog_name="drainer")
    assert "orders.indexer" not in found.stderr, "it does not run"


@pytest.mark.parametrize("usage", ["set [OPTIONS] PLAN NAME=VALUE...", "watch [OPTIONS] [PLAN]"])
def test_the_usage_has_arguments_as_errors_name_them(usage: str) -> None:
    name = usage.partition(" ")[0]
    found = CliRunner().invoke(app, [name, "--help"], prog_name="drainer", env={"COLUMNS": "200"})
    assert f"Usage: drainer {usage} " in found.stdout


def test_a_wrong_value_is_reported_with_its_variable() -> None:
    found = CliRunner().invoke(app, ["run", *NO_BROKER], env={"DRAINER_RETRIES": "two"})
    assert "error: --retries in DRAINER_RETRIES: 'two' is not a whole number" in found.stderr


def test_json_has_what_is_wrong_with_the_words() -> None:
    found = CliRunner().invoke(app, ["run", "-o", "json", "--dry-run"], prog_name="drainer")
    answer = json.loads(found.stdout)
    assert (answer["status"], answer["exit_code"]) == ("error", 2)
    assert answer["error"] == "missing --topic, --group, --handler, --bootstrap-server"


def test_the_help_names_every_command_in_its_group_and_every_exit_code() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert re.findall("─ (\\w+) ─", text) == ["Options", *PANELS]
    for name in COMMAND.commands:  # type: ignore[attr-defined]
        assert f" {name} " in text
    for code in (0, 1, 2, 3, 4, 5, 6, 8):
        assert f" {code} " in text


def test_what_needs_confirmation_is_shown_even_when_quiet(tmp_path: Path) -> None:
    path = tmp_path / "orders.plan.json"
    path.write_bytes(plan().encode())
    path.chmod(0o600)

    found = CliRunner().invoke(app, ["--quiet", "resume", str(path), "--yes"])

    assert found.exit_code == 3
    assert plan().terms.bootstrap_servers in found.stderr
    assert f"hint: If this is right, add --handler {plan().terms.handler}." in found.stderr


@pytest.mark.parametrize("words", [("resume",), ("plan", "undo")])
def test_a_plan_that_another_process_uses_is_refused_before_anything_else_is_shown(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = PlanFile(tmp_path / "orders.plan.json")
    file.write(plan())
    file.acquire()

    found = CliRunner().invoke(app, [*words, str(file.path), "--yes"])

    file.release()
    error, *hint = found.stderr.splitlines()
    assert (found.exit_code, found.stdout) == (3, "")
    assert f"another drainer process uses {file.path}" in error
    assert f"drainer watch {file.path}" in " ".join(hint)
    assert f"drainer stop {file.path}" in " ".join(hint)
