"""Values that are not typed: profiles, variables, and what neither of them may give."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drainer.cli.app import app
from drainer.cli.declared import commands_of, declared_by, given_in

HANDLER = ("--topic", "t", "--group", "g", "--handler", "nothing:Nothing")
LETTERS = ("--dead-letter-topic", "t", "-b", "127.0.0.1:1")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user without any profile; where they would lie."""
    for name in [name for name in os.environ if name.startswith("DRAINER")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "drainer"


def profile(home: Path, text: str) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "default.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def drainer(*words: str, code: int = 0, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    found = CliRunner().invoke(app, words, prog_name="drainer", env=env)
    assert found.exit_code == code, found.stderr
    return found.stdout, found.stderr


def given(*words: str, of: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a command gets that is no default, by field; ``of`` stands before the command."""
    command: Any = typer.main.get_command(app)
    context, rest = command.make_context("drainer", [*of, *words]), list(words)
    while rest and rest[0] in commands_of(command):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return given_in(context, declared_by(command).values())


def test_what_is_typed_comes_before_a_variable_before_a_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(home, 'grace = "3s"\nconcurrency = 5\n[run]\nconcurrency = 7\nfirst = ["index == 0"]\n')
    found = given("run", *HANDLER)
    assert str(found["concurrency"]) == "7"
    assert found["firsts"] == ("index == 0",)
    assert found["grace_s"] == 3
    assert "buffer_bytes" not in found
    (plan := home / "p.json").touch()
    assert str(given("resume", str(plan))["concurrency"]) == "5"
    monkeypatch.setenv("DRAINER_CONCURRENCY", "9")
    assert str(given("run", *HANDLER)["concurrency"]) == "9"
    assert str(given("run", *HANDLER, "-c", "4")["concurrency"]) == "4"


def test_a_value_that_makes_no_sense_is_reported_with_its_place(home: Path) -> None:
    profile(home, '[run]\nconcurrency = "many"\n[dead.list]\nlimit = "many"\n')
    error = drainer("run", *HANDLER, code=2)[1]
    assert f"error: concurrency in {home}/default.toml: [run]: 'many'" in error.replace("\n  ", " ")
    error = drainer("dead", "list", *LETTERS, code=2)[1].replace("\n  ", " ")
    assert f"error: limit in {home}/default.toml: [dead.list]: 'many'" in error


def test_an_error_that_comes_later_says_which_profile_or_variable_gave_the_option(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(home, '[run]\nspark-conf = ["spark.ui.port=1"]\n')
    error = drainer("run", *HANDLER, code=2)[1].replace("\n  ", " ")
    assert "error: --spark-conf spark.ui.port is given, but the drain does not run on" in error
    assert f"spark-conf is given in {home}/default.toml: [run]." in error
    profile(home, "")
    monkeypatch.setenv("DRAINER_SPARK_CONF", "spark.ui.port=1")
    error = drainer("run", *HANDLER, code=2)[1].replace("\n  ", " ")
    assert "spark-conf is given in DRAINER_SPARK_CONF." in error
    typed = ("--spark-conf", "spark.ui.port=1")
    assert "is given in" not in drainer("run", *HANDLER, *typed, code=2)[1]


def test_all_values_that_make_no_sense_are_reported_at_once(home: Path) -> None:
    profile(home, 'concurrency = "many"\n[run]\nrate = "5"\nretry-delay = "5"\n')
    error = drainer("run", *HANDLER, code=2)[1].replace("\n  ", " ")
    for each in (
        f"error: concurrency in {home}/default.toml: 'many' is not a number",
        f"; rate in {home}/default.toml: [run]: '5' is not a rate",
        f"retry-delay in {home}/default.toml: [run]: 5 of what?",
        "Write 5/s or 5/m.",
    ):
        assert each in error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--master", "local[2]"), "--master"),
        (("--spark-conf", "spark.ui.port=1"), "--spark-conf spark.ui.port"),
    ],
)
def test_an_option_of_spark_is_refused_if_another_engine_is_typed(
    home: Path, words: tuple[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(home, 'engine = "process"\n')  # This beside a variable is no contradiction.
    (plan := home / "p.json").touch()
    commands = ("run", *HANDLER), ("resume", str(plan)), ("redrive", *LETTERS, "--handler", "count")
    for command in commands:
        error = drainer(*command, "--engine", "process", *words, code=2)[1].replace("\n  ", " ")
        assert f"error: {named} is given, but with --engine process the drain does not run" in error
        assert "hint: Remove one of the two." in error
    monkeypatch.setenv("DRAINER_SPARK_MASTER", "local[2]")
    state = ("--spark-conf", "drainer.state=/state")
    for engine in (("--engine", "process"), ()):
        drainer("resume", str(plan), *engine, *state, code=3)  # The plan is empty.


def test_a_misspelt_variable_is_reported_with_the_nearest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "CONCURENCY",
        "QUIET",
        "SAMPLE",
        "STATUS",
        "PROFILE",
        "PORT_9464_TCP",
        "XYZZY",
        "YES",
    ):
        monkeypatch.setenv(f"DRAINER_{name}", "")
    monkeypatch.delenv("DRAINER_PROFILE")
    monkeypatch.setenv("DRAINER_LIMIT", "many")
    error = drainer("dead", "list", *LETTERS, code=2)[1].replace("\n  ", " ")
    assert (
        "warning: drainer does not know these variables: DRAINER_CONCURENCY (did you mean"
        " DRAINER_CONCURRENCY?), DRAINER_XYZZY, DRAINER_YES (--yes has no variable)\n"
    ) in error


def test_no_variable_gives_an_expression_or_a_consent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST", "ORDER", "YES", "SKIP", "VERSION", "HELP_ALL"):
        monkeypatch.setenv(f"DRAINER_{name}", "index == 0")  # it would be cut at each space
    monkeypatch.setenv("DRAINER_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("DRAINER_FROM", "earliest")
    assert given("run", *HANDLER).keys() == {"topic", "group", "handler", "master", "from_"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[run]\nconcurency = 5\n", "Did you mean concurrency?"),
        ("concurrancy = 5\n", "Did you mean concurrency?"),
        ("[resume]\nlater = 5\n[rum]\n", "Did you mean run?"),
        ("spark-master = 'local'\n", "Did you mean master?"),
        ("xyz = 5\n", "sets xyz, which is not an option"),
        ("[run]\nsample = 5\n", "[run] sets sample, which is not an option"),
        ("yes = true\n", "sets yes, which must be typed each time"),
        ("[run]\norder = 'none'\n", "gives up the order of sub-keys"),
        ("skip = ['key == 1']\n", "it leaves sub-messages out"),
        ("tune = ['order=none']\n", "each rare setting has a key"),
        ("run = 5\n", "must be a table"),
        ("nonsense\n", "can't read"),
        ("deadline = 08:00\n", 'deadline = "08:00"'),
        ("[run]\nset = {url = 'x'}\n", 'takes a text or a list: "NAME=VALUE".'),
        ("[run]\nrate = {s = 5}\n", 'a text or a list: "N/s|none".'),
    ],
)
def test_what_makes_no_sense_in_a_profile_is_a_usage_error(
    home: Path, tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert error in drainer("--profile", str(file), "run", *HANDLER, code=2)[1]


def test_a_profile_that_is_missing_is_named_by_the_nearest(home: Path) -> None:
    profile(home, "").rename(home / "acme.toml")
    assert "Did you mean acme?" in drainer("--profile", "acmee", "run", *HANDLER, code=2)[1]


def test_a_profile_takes_the_times_of_toml_and_one_value_for_a_list(home: Path) -> None:
    profile(home, 'deadline = 08:00:00\n[run]\nset = "url=x"\n')
    found = given("run", *HANDLER)
    assert found["options"] == {"url": "x"}
    assert found["deadline"].astimezone().hour == 8
    profile(home, "deadline = 2026-11-30T08:00:00Z\n")
    assert given("run", *HANDLER)["deadline"].isoformat().startswith("2026-11-30T")


def test_a_profile_may_hold_what_other_commands_take(home: Path) -> None:
    profile(home, 'sample = 7\ngroup = "indexer"\nset = ["index=orders"]\n[dead.list]\nlimit = 3\n')
    assert given("run", "--topic", "t", "--handler", "h")["group"] == "indexer"
    assert given("run", *HANDLER)["options"] == {"index": "orders"}
    assert given("inspect", *HANDLER[:4])["sample"] == 7
    assert given("set", "p.json", "rate=1/s").keys() == {"plan", "settings"}, "its table is [set]"


def test_the_commands_of_a_group_have_tables_of_their_own(home: Path) -> None:
    profile(home, 'all = true\n[dead]\nsource = ["a"]\n[dead.list]\nlimit = 3\n')
    found = given("dead", "list", *LETTERS)
    assert (found["all_"], found["sources"], found["limit"]) == (True, ("a",), 3)
    profile(home, "[dead.lst]\nlimit = 3\n")
    assert "Did you mean list?" in drainer("dead", "show", "0:1", code=2)[1]


def test_a_profile_is_named_by_an_option_or_a_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(home, "[run]\nconcurrency = 5\n").rename(home / "other.toml")
    assert "concurrency" not in given("run", *HANDLER)
    assert str(given("run", *HANDLER, of=("--profile", "other"))["concurrency"]) == "5"
    monkeypatch.setenv("DRAINER_PROFILE", "other")
    assert str(given("run", *HANDLER)["concurrency"]) == "5"


def test_a_profile_that_was_named_has_to_be_there_and_be_ones_own(home: Path) -> None:
    assert "does not exist" in drainer("--profile", "prod", "run", *HANDLER, code=2)[1]
    file = profile(home, "").rename(home / "prod.toml")
    file.chmod(0o666)
    assert "everyone" in drainer("--profile", "prod", "run", *HANDLER, code=3)[1]


@pytest.mark.parametrize(
    ("command", "most"), [("run", 47), ("resume", 44), ("redrive", 45), ("estimate", 40)]
)
def test_help_is_short_and_leads_to_all_of_it(home: Path, command: str, most: int) -> None:
    """A row begins with the name of an option. The whole help may list ``--help`` as one more."""
    short, whole = drainer(command, "--help")[0], drainer(command, "--help-all")[0]
    assert f"drainer {command} --help-all" in short
    rows = re.compile(r"^│ [* ]{0,3}--?[a-zA-Z]", re.MULTILINE)
    assert 8 <= len(rows.findall(short)) <= 18
    found = len(rows.findall(whole)) - len(["--help"])
    assert 30 <= found <= most, (
        f"{command} has {found} options, which are too many to read at 6 pm: declare one of them"
        " with tune=True, or leave it out of the command by without()"
    )
    assert "env var" not in short.replace("DRAINER", "")
    assert "DRAINER_CONCURRENCY" in whole
    assert "╭─ Failures" in whole
    assert max(map(len, short.splitlines())) <= 80
    for name in ("--client-property", "max-doubt"):
        assert name not in short
        assert name in whole


@pytest.mark.parametrize("weak", ["1", "true", "yes", "a" * 15])
def test_a_weak_secret_masks_nothing_and_is_refused(home: Path, weak: str) -> None:
    _, err = drainer("plan", "show", "none", env={"DRAINER_MASK_KEYS": weak}, code=2)
    assert "error: DRAINER_MASK_KEYS must be a secret of at least 16 characters" in err
    assert 'hint: Make one: `export DRAINER_MASK_KEYS="$(openssl rand' in err


@pytest.mark.parametrize("home", ["/dev/null", None])
def test_without_a_home_there_is_no_profile(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons have none, nor has a container's user without an entry."""

    def no_entry(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    assert given("ps") == {}
