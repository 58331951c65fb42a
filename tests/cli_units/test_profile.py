"""Profiles: values that need not be typed, and where each value comes from."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drainer.cli.app import app
from drainer.cli.help import SHORT_OF
from drainer.cli.profile import read_profile

HANDLER = ("--topic", "t", "--group", "g", "--handler", "nothing:Nothing")


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


def values(*words: str, concurrency: str | None = None) -> dict[str, tuple[str, str]]:
    env = {} if concurrency is None else {"DRAINER_CONCURRENCY": concurrency}
    shown = json.loads(drainer("config", "show", *words, "-o", "json", env=env)[0])
    return {each["option"]: (each["value"], each["from"]) for each in shown["values"]}


def test_a_profile_begins_with_all_that_it_may_set(home: Path) -> None:
    path = Path(drainer("config", "init")[0].strip())
    assert path == home / "default.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert '\n# concurrency = "100"\n' in text
    assert "Maximum calls in flight" in text
    assert "# yes" not in text
    assert drainer("run", "--help")[0], "as it is, it sets nothing"
    assert "already exists" in drainer("config", "init", code=3)[1]


def test_what_is_typed_comes_before_a_variable_before_a_profile(home: Path) -> None:
    file = profile(
        home, 'grace = "3s"\nconcurrency = 5\n[run]\nconcurrency = 7\nfirst = ["index == 0"]\n'
    )
    assert values()["--concurrency"] == ("7", str(file))
    assert values("resume")["--concurrency"] == ("5", str(file))
    assert values(concurrency="9")["--concurrency"] == ("9", "DRAINER_CONCURRENCY")
    assert values()["--first"] == ("index == 0", str(file))
    assert values()["--buffer"] == ("256MiB", "default")
    file.write_text('[run]\nconcurrency = "many"\n')
    assert "--concurrency in the profile: 'many'" in drainer("run", *HANDLER, code=2)[1], (
        "it is taken"
    )
    assert "no bootstrap servers" in drainer("run", *HANDLER, "--concurrency", "4", code=2)[1]


def test_a_variable_is_shown_only_if_it_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAINER_FIRST", "index == 0")  # it would be cut at each space
    monkeypatch.setenv("DRAINER_SPARK_MASTER", "local[2]")
    assert "--first" not in values()
    assert values()["--master"] == ("local[2]", "DRAINER_SPARK_MASTER")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[run]\nconcurency = 5\n", "Did you mean concurrency?"),
        ("concurrancy = 5\n", "Did you mean concurrency?"),
        ("[resume]\nlater = 5\n[rum]\n", "Did you mean run?"),
        ("master = 'local'\n", "Did you mean spark-master?"),
        ("xyz = 5\n", "sets xyz, which is not an option"),
        ("[run]\nsample = 5\n", "[run] sets sample, which is not an option"),
        ("profile = 'other'\n", "sets profile, which must be typed each time"),
        ("yes = true\n", "sets yes, which must be typed each time"),
        ("[run]\norder = 'none'\n", "gives up the order of sub-keys"),
        ("skip = ['key == 1']\n", "it leaves sub-messages out"),
        ("canary = 1\n", "calls the handler for real"),
        ("run = 5\n", "must be a table"),
        ("nonsense\n", "can't read"),
    ],
)
def test_what_makes_no_sense_in_a_profile_is_a_usage_error(
    home: Path, tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert error in drainer("--profile", str(file), "run", *HANDLER, code=2)[1]


def test_a_profile_may_hold_what_other_commands_take(home: Path) -> None:
    profile(home, 'sample = 7\ngroup = "indexer"\nset = ["index=orders"]\n[dead.list]\nlimit = 3\n')
    assert values("run")["--group"][0] == "indexer"
    assert values("inspect")["--sample"][0] == "7"
    assert values("certify")["--sample"][0] == "7"
    assert values("set") == {}, "its table would be [set]"
    assert "--group" not in values("redrive"), "which is the group of redrives"


def test_the_commands_of_a_group_have_tables_of_their_own(home: Path) -> None:
    file = profile(home, 'all = true\n[dead]\nsource = ["a"]\n[dead.list]\nlimit = "many"\n')
    shown = values("dead", "list")
    assert shown["--all"] == ("True", str(file))
    assert shown["--source"] == ("a", str(file))
    assert shown["--limit"] == ("many", str(file))
    found = drainer("dead", "list", "--dead-letter-topic", "t", "-b", "127.0.0.1:1", code=2)[1]
    assert "--limit in the profile" in found, "it is taken"
    profile(home, "[dead.lst]\nlimit = 3\n")
    assert "Did you mean list?" in drainer("dead", "show", "0:1", code=2)[1]


def test_a_group_that_is_a_command_itself_passes_values_on(home: Path) -> None:
    file = profile(
        home, '[limits]\ntrials = 5\nreport = "a.html"\n[limits.compare]\nreport = "b.html"\n'
    )
    assert values("limits")["--trials"] == ("5", str(file))
    assert values("limits")["--report"] == ("a.html", str(file))
    assert values("limits", "compare")["--report"] == ("b.html", str(file))


def test_the_values_of_a_profile_are_shown_wherever_it_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(profile(home, "[run]\nconcurrency = 5\n").rename(home / "other.toml"))
    assert values("--profile", "other")["--concurrency"] == ("5", file)
    assert file in drainer("--profile", "other", "config", "show", "-o", "json")[0]
    monkeypatch.setenv("DRAINER_PROFILE", "other")
    assert values()["--concurrency"] == ("5", file)


def test_the_logins_of_the_client_file_are_shown_with_where_they_go(home: Path) -> None:
    client = home.with_name("client.properties")
    file = profile(home, f"[run]\nclient-config = '{client}'\n")
    assert values()["--client-config"][0].startswith("can't read the properties file")
    client.write_text(
        "sasl.username=me\nsasl.password=s3cr3t\nhttp.token=s3cr3t\nhttp.ssl.ca.location=ca.pem\n"
        "schema.registry.url=https://me:s3cr3t@r:1\nschema.registry.basic.auth.user.info=me:s3cr3t\n"
    )
    shown = drainer("config", "show", "-o", "json")[0]
    assert "s3cr3t" not in shown
    assert values()["sasl.username, sasl.password"][0].startswith("for the brokers")
    assert values()["http.token"] == ("for the service that a command line names", str(client))
    assert values()["schema.registry.basic.auth.user.info"][0].endswith("https://***@r:1")
    assert values()["--client-config"] == (str(client), str(file))


def test_no_variable_gives_up_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAINER_ORDER", "none")
    assert values()["--order"] == ("sub-key", "default")


def test_a_profile_that_was_named_has_to_be_there_and_be_ones_own(home: Path) -> None:
    assert "config init --profile prod" in drainer("--profile", "prod", "run", *HANDLER, code=2)[1]
    file = Path(drainer("config", "init", "--profile", "prod")[0].strip())
    file.chmod(0o666)
    assert "everyone" in drainer("--profile", "prod", "run", *HANDLER, code=3)[1]


@pytest.mark.parametrize("command", ["run", "resume", "redrive"])
def test_help_is_short_and_leads_to_all_of_it(home: Path, command: str) -> None:
    short, whole = drainer(command, "--help")[0], drainer(command, "--help-all")[0]
    assert f"drainer {command} --help-all" in short
    assert sum(" --" in line[:6] for line in short.splitlines()) < SHORT_OF + 2
    assert "env var" not in short.replace("DRAINER", "")
    assert "DRAINER_CONCURRENCY" in whole
    assert "╭─ Failures" in whole
    assert max(map(len, short.splitlines())) <= 80
    for name in ("--shards", "--wave", "--max-doubt"):
        assert name not in short
        assert name in whole


def test_no_secret_is_shown_wherever_it_comes_from(home: Path) -> None:
    profile(
        home,
        """
set = ["token=hush", "index=orders", "url=https://store.example/x?sv=1&sig=hush"]
on-end = "curl -H 'Authorization: hush' https://hooks.example"
state = "https://me:hush@store.example/state"
""",
    )
    env = {"DRAINER_SPARK_CONF": "spark.ssl.keyPassword=hush spark.jars.packages=a:b:1"}

    for form in ("json", "table"):
        out, err = drainer("config", "show", "-o", form, env=env)
        assert "hush" not in out + err
        assert "token=…, index=orders, url=…" in out
        assert "spark.ssl.keyPassword=…, spark.jars.packages=a:b:1" in out


@pytest.mark.parametrize("weak", ["1", "true", "yes", "a" * 15])
def test_a_weak_secret_masks_nothing_and_is_refused(home: Path, weak: str) -> None:
    _, err = drainer("plan", "show", "none", env={"DRAINER_MASK_KEYS": weak}, code=2)
    assert "error: DRAINER_MASK_KEYS must be a secret of at least 16 characters" in err
    assert 'hint: Make one: export DRAINER_MASK_KEYS="$(openssl rand' in err
    env = {"DRAINER_METRICS_TOKEN": weak}
    _, err = drainer("run", *HANDLER, "--metrics", "0", env=env, code=2)
    assert "error: DRAINER_METRICS_TOKEN must be a secret" in err


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
    assert read_profile(None).values == {}
