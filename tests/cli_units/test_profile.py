"""Profiles: values of options in a file, below environment variables and flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from drainer.cli.profile import NAMED_ONLY, apply_profile, as_defaults, read_profile
from drainer.cli.profile import _commands as commands
from drainer.cli.profile import _key as profile_key
from drainer.errors import UsageError
from drainer.ownership import NotOwn
from privileges import without_privileges

CONTENT = """
topic = "orders"
concurrency = 50
debug = true

[profile.night]
concurrency = 500
buffer = "1GiB"

[profile.day]
topic = "invoices"

[profile.empty]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(content: str | bytes, name: str = "drainer.toml") -> Path:
    path = Path(name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def wrong(path: Path | None, name: str | None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_profile(path, name)
    assert caught.value.exit_code == 2
    return caught.value


# Reading.


def test_no_file_and_no_wish_for_one_is_nothing() -> None:
    assert read_profile(None, None) == {}


def test_the_top_level_holds_without_a_profile() -> None:
    write(CONTENT)

    assert read_profile(None, None) == {"topic": "orders", "concurrency": 50, "debug": True}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("night", {"topic": "orders", "concurrency": 500, "debug": True, "buffer": "1GiB"}),
        ("day", {"topic": "invoices", "concurrency": 50, "debug": True}),
        ("empty", {"topic": "orders", "concurrency": 50, "debug": True}),
    ],
)
def test_a_profile_lies_on_top_of_the_top_level(name: str, values: dict[str, object]) -> None:
    write(CONTENT)

    assert read_profile(None, name) == values


def test_another_file_may_be_named() -> None:
    write('topic = "wrong"')
    path = write(CONTENT, "elsewhere.toml")

    assert read_profile(path, "day")["topic"] == "invoices"


def test_a_named_file_must_be_there() -> None:
    error = wrong(Path("elsewhere.toml"), None)

    assert str(error) == "there is no profile file elsewhere.toml"
    assert "--config" in (error.hint or "")


def test_a_named_profile_needs_a_file() -> None:
    assert "drainer.toml" in str(wrong(None, "night"))


def test_a_folder_that_can_not_be_searched_has_no_profile_unless_one_is_asked_for(
    folder: Path,
) -> None:
    folder.chmod(0)
    with without_privileges():
        assert read_profile(None, None) == {}
        assert "Permission denied" in str(wrong(None, "night"))
        assert "Permission denied" in str(wrong(folder / "drainer.toml", None))


def test_a_folder_is_no_profile_file() -> None:
    Path("drainer.toml").mkdir()

    assert read_profile(None, None) == {}
    assert "there is no profile file" in str(wrong(None, "night"))


def test_an_unknown_profile_is_answered_with_the_known() -> None:
    write(CONTENT)
    error = wrong(None, "nihgt")

    assert "has no profile 'nihgt'" in str(error)
    assert error.hint == "it has: day, empty, night"


def test_a_file_without_profiles_has_none() -> None:
    write('topic = "orders"')

    assert wrong(None, "night").hint == "it has: none"


@pytest.mark.parametrize(
    "content", ["topic = ", "[profile", 'topic = "a"\ntopic = "b"', b"\xff\xfe", b"topic = '\xe9'"]
)
def test_what_is_no_toml_is_a_usage_error(content: str | bytes) -> None:
    write(content)

    assert "drainer.toml can't be read" in str(wrong(None, None))


@pytest.mark.parametrize(
    "content",
    ["profile = 3", 'profile = "night"', "[profile]\nnight = 3", "[[profile]]\nconcurrency = 5"],
)
def test_a_profile_that_is_no_table_is_a_usage_error(content: str) -> None:
    write(content)

    error = wrong(None, "night")
    assert "drainer.toml: profile" in str(error)
    assert "[profile.NAME]" in (error.hint or "")


@pytest.mark.parametrize("content", ["profile = 3", 'profile = "night"', "[[profile]]\na = 5"])
def test_a_profile_that_is_no_table_is_not_passed_over_when_none_is_named(content: str) -> None:
    write(content)

    assert "profile is no table" in str(wrong(None, None))


# Whose file it is.

SOMEBODY = 65534
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def refused(path: Path | None = None) -> str:
    with pytest.raises(NotOwn) as caught:
        read_profile(path, None)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_a_file_that_anybody_can_write_is_refused(mode: int, named: bool) -> None:
    path = write(CONTENT)
    path.chmod(mode)

    assert f"drainer.toml can be written by anybody (mode {mode:04o})" in refused(
        path if named else None
    )


@for_root
@pytest.mark.parametrize("named", [False, True])
def test_a_file_of_somebody_else_is_refused(named: bool) -> None:
    path = write(CONTENT)
    os.chown(path, SOMEBODY, SOMEBODY)

    assert "drainer.toml belongs to nobody (uid 65534), and not to root" in refused(
        path if named else None
    )


@for_root
def test_a_link_of_somebody_else_is_followed_to_whose_file_it_is() -> None:
    path = write(CONTENT, "theirs.toml")
    os.chown(path, SOMEBODY, SOMEBODY)
    Path("drainer.toml").symlink_to(path)

    assert "belongs to nobody" in refused()


@for_root
def test_a_file_that_a_group_can_write_is_refused() -> None:
    path = write(CONTENT)
    os.chown(path, 0, SOMEBODY)
    path.chmod(0o664)

    assert "can be written by group nogroup (gid 65534) (mode 0664)" in refused()


@for_root
def test_a_group_of_one_user_alone_may_write(folder: Path) -> None:
    path = write(CONTENT)
    path.chmod(0o664)
    folder.chmod(0o775)

    assert read_profile(None, None)["topic"] == "orders"


def test_a_file_found_where_anybody_can_put_one_is_refused(folder: Path) -> None:
    write(CONTENT)
    folder.chmod(0o777)
    assert f"{folder} can be written by anybody" in refused()

    assert read_profile(Path("drainer.toml"), None)["topic"] == "orders"


def test_it_is_refused_as_well_below_such_a_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    write(CONTENT)
    folder.chmod(0o777)

    assert f"{folder} can be written by anybody" in refused()


def test_in_a_sticky_folder_a_file_stays_whose_it_is(folder: Path) -> None:
    write(CONTENT)
    folder.chmod(0o1777)

    assert read_profile(None, None)["topic"] == "orders"


@pytest.mark.parametrize("key", sorted(NAMED_ONLY))
def test_a_file_that_was_not_named_is_not_trusted_with_this(key: str) -> None:
    path = write(f'"{key}" = "x"')

    assert f"drainer.toml says {key}, which {NAMED_ONLY[key]}" in str(wrong(None, None))
    assert "--config drainer.toml" in (wrong(None, None).hint or "")
    assert read_profile(path, None) == {key: "x"}


def test_nor_is_a_profile_of_it() -> None:
    path = write("[profile.night]\nyes = true")

    assert read_profile(None, None) == {}
    assert "says yes, which answers for you" in str(wrong(None, "night"))
    assert read_profile(path, "night") == {"yes": True}


# As defaults of commands.

NAMED = ("--config", "drainer.toml")

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


def invoke(*words: str, **environment: str) -> str:
    result = CliRunner().invoke(app, words, env=environment)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_flag_beats_the_environment_and_that_a_profile_and_that_the_top_level() -> None:
    assert invoke("run") == "from the code 100 None None False"
    write('topic = "top level"\n[profile.night]\ntopic = "profile"')

    assert invoke("run").startswith("top level ")
    assert invoke("--profile", "night", "run").startswith("profile ")
    assert invoke("--profile", "night", "run", TEST_TOPIC="environment").startswith("environment ")
    assert invoke(
        "--profile", "night", "run", "--topic", "flag", TEST_TOPIC="environment"
    ).startswith("flag ")


def test_values_keep_their_kinds() -> None:
    write('concurrency = 7\npartition = [1, 2]\n"-X" = ["a=b"]\nyes = true')

    assert invoke(*NAMED, "run") == "from the code 7 [1, 2] ['a=b'] True"


def test_a_command_inside_a_group_gets_its_values_too() -> None:
    write('topic = "orders"\ndeep = false\nconcurrency = 7')

    assert invoke("plan", "verify") == "orders False"
    assert invoke("run").startswith("orders ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('concurrency = "many"', "concurrency can't be 'many'"),
        ("concurrency = true", "concurrency can't be true or false"),
        ("concurrency = [7]", "concurrency can't be a list"),
        ("concurrency = {most = 7}", "concurrency can't be a table"),
        ('partition = [1, "x"]', "partition can't be"),
        ("partition = [[1]]", "partition can't be a list"),
        ('yes = "maybe"', "yes can't be 'maybe'"),
        ("yes = []", "yes can't be"),
        ("topic = false", "topic can't be true or false"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_its_file_and_key(content: str, told: str) -> None:
    write(content, "elsewhere.toml")

    with pytest.raises(UsageError, match=r"^elsewhere\.toml: ") as caught:
        invoke("--config", "elsewhere.toml", "run")

    assert told in str(caught.value)
    assert caught.value.hint == "`drainer run --help` says what it may be"


def test_one_value_will_do_where_several_may_be_given() -> None:
    write('partition = 12\n"-X" = "a=b"')

    assert invoke(*NAMED, "run") == "from the code 100 [12] ['a=b'] False"


@pytest.mark.parametrize("key", ["conurrency", "c", "--topic", "partitions", "deeper.topic"])
def test_a_key_that_no_command_has_is_a_slip(key: str) -> None:
    write(f"{key} = 7")

    with pytest.raises(UsageError, match="no command has an option") as caught:
        invoke("run")

    assert key.partition(".")[0] in str(caught.value)
    assert caught.value.hint


def test_a_slip_names_the_file_that_it_is_in() -> None:
    write("conurrency = 7", "elsewhere.toml")

    with pytest.raises(UsageError, match=r"elsewhere\.toml"):
        invoke("--config", "elsewhere.toml", "run")


def test_a_slip_inside_another_profile_is_not_looked_at() -> None:
    write("[profile.night]\nconurrency = 7\n[profile.day]\nconcurrency = 8")

    assert invoke("--profile", "day", "run").split()[3] == "8"


def test_the_commands_of_drainer_have_options_to_set() -> None:
    from drainer.cli.app import app as drainer_app  # noqa: PLC0415

    command = typer.main.get_command(drainer_app)
    defaults = as_defaults({"concurrency": 7, "topic": "orders", "grace": "5s"}, command)

    assert defaults["run"] == {"concurrency": "7", "topic": "orders", "grace_s": "5s"}
    assert defaults["resume"]["concurrency"] == "7"
    assert "topic" not in defaults["resume"]


HARMLESS = {
    # What is drained, which is shown before a question.
    *("topic", "group", "redrive-group", "partition", "partitions"),
    *("reason", "sub-key", "error", "max-redrives", "values", "all", "mixed"),
    *("from-group", "from-handler", "from-topic"),
    # How fast, and what becomes of failures.
    *("concurrency", "buffer", "plan-interval", "grace", "rate", "retries", "retry-delay"),
    *("retry-max-delay", "timeout", "after-dead", "max-dead", "max-consecutive"),
    *("breaker", "max-outage", "max-doubt", "engine", "tasks", "wave", "limits", "deadline"),
    # What is looked at, and how it is told. An existing file of another kind is not written over.
    *(
        "latency",
        "latency-from",
        "canary",
        "sample",
        "seed",
        "full",
        "handle",
        "dry-run",
        "limit",
        "messages",
    ),
    *("json", "debug", "log-format", "report", "record", "csv", "png", "out", "plan"),
    *("redrive-plan", "metrics-port", "metrics-linger", "to"),
    # How much traffic a search for limits makes.
    *("bytes", "compressibility", "compression", "consumer-groups", "cool-down", "max-mb-per-s"),
    *("max-producers", "pace", "precision", "safe-share", "trials", "vary", "warm-up", "window"),
}


def test_of_each_option_it_is_decided_whether_a_file_must_be_named_for_it() -> None:
    from drainer.cli.app import app as drainer_app  # noqa: PLC0415

    keys = {
        profile_key(word, parameter)
        for _, command in commands(typer.main.get_command(drainer_app), ())
        for parameter in command.params
        for word in parameter.opts
        if word.startswith("--") or word == "-X"
    }
    kept_from = {"profile", "config", "version", "install-completion", "show-completion"}
    assert keys - kept_from - HARMLESS == set(NAMED_ONLY)
