"""What is said of Spark is understood, and what would break a law is refused with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drainer.errors import UsageError
from drainer.spark.settings import SparkLook, SparkSettings

LOCAL = ["local", "local[*]", "local[4]", "local[*, 3]", "local[2,4]", "local-cluster[2,1,1024]"]
REMOTE = ["spark://a:7077,b:7077", "yarn", "k8s://https://10.0.0.1:6443"]


@pytest.mark.parametrize("master", LOCAL)
def test_a_local_master_needs_no_place_for_the_state(master: str) -> None:
    assert SparkSettings(master).is_local


@pytest.mark.parametrize("master", REMOTE)
def test_a_cluster_needs_one_that_all_of_it_reaches(master: str) -> None:
    with pytest.raises(UsageError, match="a place to record what is done") as raised:
        SparkSettings(master)
    assert "--state" in (raised.value.hint or "")
    assert not SparkSettings(master, state="s3://bucket/state").is_local


@pytest.mark.parametrize(
    ("look", "cores"),
    [
        (SparkLook("local"), 1),
        (SparkLook("local[2,3]"), 2),
        (SparkLook("local[*]"), 4),
        (SparkLook("local[64]"), 4),
        (SparkLook("local[*]", tasks=3), 3),
        (SparkLook("local-cluster[2,1,1024]"), 2),
        (SparkLook("yarn"), None),
        (SparkLook("yarn", tasks=40), 40),
        (SparkLook("spark://h:1", {"spark.cores.max": "24"}), 24),
        (
            SparkLook("yarn", {"spark.executor.instances": "10", "spark.executor.cores": "4"}),
            40,
        ),
    ],
)
def test_cores_are_known_before_spark_starts_where_somebody_says_them(
    look: SparkLook, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert look.cores == cores


@pytest.mark.parametrize("master", ["", "lokal", "local[]", "local[x]", "spark://", "mesos://h"])
def test_no_master_of_spark_s_is_told_apart(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark master"):
        SparkSettings(master, state="s3://bucket/state")


def test_spark_connect_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"Spark Connect.*SparkContext") as raised:
        SparkSettings("sc://host:15002", state="s3://bucket/state")
    assert "spark://HOST:PORT" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("spark.speculation", " TRUE ", "handle everything twice"),
        ("spark.master", "yarn", "--master"),
        ("spark.remote", "sc://h", "Spark Connect"),
        ("spark.api.mode", "connect", "Spark Connect"),
        ("spark.submit.deployMode", "cluster", "this command is the driver"),
    ],
)
def test_a_setting_that_a_drain_can_t_have_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        SparkSettings("local[2]", {name: value})


def test_what_a_drain_has_anyway_may_be_said() -> None:
    conf = {
        "spark.speculation": "false",
        "spark.api.mode": "classic",
        "spark.submit.deployMode": "client",
        "spark.executor.memory": "4g",
    }

    assert SparkSettings("local[2]", conf).conf == conf


def test_what_is_no_setting_of_spark_s_would_do_nothing_and_is_refused() -> None:
    with pytest.raises(UsageError, match=r"fs\.s3a\.endpoint is no setting"):
        SparkSettings("local[2]", {"fs.s3a.endpoint": "hidden"})


def test_a_secret_is_shown_nowhere() -> None:
    settings = SparkSettings(
        "local[2]",
        {
            "spark.hadoop.fs.s3a.secret.key": "hidden-1",
            "spark.hadoop.fs.s3a.access.key": "hidden-2",
            "spark.ssl.keyStorePassword": "hidden-3",
            "spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hidden-4",
            "spark.hadoop.fs.azure.account.key.x": "hidden-5",
            "spark.executor.memory": "4g",
        },
    )

    assert "hidden" not in repr(settings) + str(settings.shown_conf())
    assert settings.shown_conf()["spark.executor.memory"] == "4g"


def test_a_secret_in_the_place_of_the_state_is_refused() -> None:
    with pytest.raises(UsageError, match="credentials"):
        SparkSettings("local[2]", state="s3://key:hidden@bucket/x")


@pytest.mark.parametrize(
    "wrong", [{"wave_bytes": 0}, {"tasks": 0}, {"tasks": 10_001}, {"state": " "}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SparkSettings("local[2]", **wrong)


def test_an_archive_has_to_be_there_and_to_be_importable(tmp_path: Path) -> None:
    good, other = tmp_path / "handlers.zip", tmp_path / "handlers.tar.gz"
    good.touch()
    other.touch()

    assert SparkSettings("local", archives=(str(good),)).archives == (str(good),)
    with pytest.raises(UsageError, match="is not an archive that Python can import"):
        SparkSettings("local", archives=(str(other),))
    with pytest.raises(UsageError, match="the file does not exist"):
        SparkSettings("local", archives=(str(tmp_path / "none.whl"),))


def test_a_command_that_needs_no_spark_imports_none_of_it() -> None:
    code = (
        "import sys, drainer.cli.app, drainer.cli.run, drainer.operations.drain;"
        "sys.exit(int(bool({'pyspark', 'pyarrow', 'py4j', 'pandas'} & set(sys.modules))))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
