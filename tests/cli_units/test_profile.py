"""Profiles: values of options in a named file, below environment variables and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from drainer.cli.profile import apply_profile, as_defaults
from drainer.errors import UsageError
from drainer.ownership import NotOwn

app = typer.Typer()
inner = typer.Typer()
app.add_typer(inner, name="plan")


@app.callback()
def main(context: typer.Context, profile: str | None = None, config: Path | None = None) -> None:
    apply_profile(context, config, profile)


@app.command()
def run(
    topic: Annotated[str, typer.Option(envvar="TEST_TOPIC")] = "from the code",
    concurrency: Annotated[int, typer.Option("--concurrency", "-c")] = 100,
    partitions: Annotated[list[int] | None, typer.Option("--partition")] = None,
    properties: Annotated[list[str] | None, typer.Option("-X")] = None,
    yes: Annotated[bool, typer.Option("--yes")] = False,
) -> None:
    typer.echo(f"{topic} {concurrency} {partitions} {properties} {yes}")


@inner.command()
def verify(topic: str = "from the code", deep: bool = True) -> None:
    typer.echo(f"{topic} {deep}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(content: str, *words: str, **environment: str) -> str:
    Path("p.toml").write_text(content)
    result = CliRunner().invoke(app, ["--config", "p.toml", *words], env=environment)
    if isinstance(result.exception, UsageError | NotOwn):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_flag_beats_the_environment_and_that_a_profile_and_that_the_top_level() -> None:
    content = 'topic = "top level"\n[profile.night]\ntopic = "profile"\n[profile.empty]'
    night = ("--profile", "night", "run")
    assert invoke("", "run") == "from the code 100 None None False"
    assert invoke(content, "run").startswith("top level ")
    assert invoke(content, "--profile", "empty", "run").startswith("top level ")
    assert invoke(content, *night).startswith("profile ")
    assert invoke(content, *night, TEST_TOPIC="environment").startswith("environment ")
    flag = invoke(content, *night, "--topic", "flag", TEST_TOPIC="environment")
    assert flag.startswith("flag ")


def test_a_file_is_read_only_if_it_is_named() -> None:
    for name in ("drainer.toml", "profile.toml"):
        Path(name).write_text("yes = true")
    assert CliRunner().invoke(app, ["run"]).stdout.strip().endswith("False")
    with pytest.raises(UsageError, match="--profile night needs a file"):
        CliRunner().invoke(app, ["--profile", "night", "run"], catch_exceptions=False)


def test_values_keep_their_kinds_and_one_will_do_where_several_may_be_given() -> None:
    content = 'concurrency = 7\npartition = [1, 2]\n"-X" = "a=b"\nyes = true'
    assert invoke(content, "run") == "from the code 7 [1, 2] ['a=b'] True"


def test_a_command_inside_a_group_gets_its_values_too() -> None:
    assert invoke('topic = "orders"\ndeep = false\nyes = true', "plan", "verify") == "orders False"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("topic = ", "p.toml can't be read"),
        ("profile = 3", "profile must be a table"),
        ("[profile]\nnight = 3", "profile must be a table"),
        ("[profile.day]", "no profile 'night'"),
        ("conurrency = 7", "no command has an option 'conurrency'"),
        ("c = 7", "no command has an option 'c'"),
        ('concurrency = "many"', "p.toml: concurrency can't be 'many'"),
        ("concurrency = [7]", "concurrency can't be"),
        ('partition = [1, "x"]', "partition can't be"),
        ('yes = "maybe"', "yes can't be 'maybe'"),
        ("topic = true", "topic can't be True"),
        ("topic = {name = 'orders'}", "topic can't be {'name'"),
    ],
)
def test_what_a_file_gets_wrong_is_reported_with_its_place(content: str, reported: str) -> None:
    with pytest.raises(UsageError) as caught:
        invoke(content, *(("--profile", "night") if "[" in content[:1] else ()), "run")
    assert "p.toml" in str(caught.value)
    assert reported in str(caught.value)


def test_a_file_that_others_can_write_is_refused() -> None:
    Path("p.toml").touch()
    Path("p.toml").chmod(0o666)
    with pytest.raises(NotOwn, match="can be written by anybody"):
        invoke("", "run")


def test_a_redrive_takes_its_group_and_plan_by_names_of_their_own() -> None:
    from drainer.cli.app import app as drainer_app  # noqa: PLC0415

    command = typer.main.get_command(drainer_app)
    values = {"concurrency": 7, "group": "indexer", "redrive-group": "mine", "grace": "5s"}
    defaults = as_defaults(values, command, Path("p.toml"))
    assert defaults["run"] == {"concurrency": "7", "group": "indexer", "grace_s": "5s"}
    assert defaults["redrive"] == {"concurrency": "7", "group": "mine", "grace_s": "5s"}
    assert "group" not in defaults["resume"]
