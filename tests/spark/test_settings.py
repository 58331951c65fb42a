"""Settings of Spark: read as Spark reads them, refused where they would break a law."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from drainer.errors import UsageError
from drainer.spark.session.settings import SparkLook, SparkSettings, with_retries

LOCAL = ["local", "local[*]", "local[4]", "local[*, 3]", "local[2,4]", "local-cluster[2,1,1024]"]
REMOTE = ["spark://a:7077,b:7077", "yarn", "k8s://https://10.0.0.1:6443"]


@pytest.mark.parametrize("master", [*LOCAL, *REMOTE])
def test_a_cluster_needs_a_state_that_all_of_it_reaches_and_a_local_master_does_not(
    master: str,
) -> None:
    if master in LOCAL:
        assert SparkSettings(master).is_local
        return
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
def test_cores_are_known_before_spark_starts_where_the_settings_name_them(
    look: SparkLook, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert look.cores == cores


@pytest.mark.parametrize(
    ("master", "begun"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2, 1]", "local[2, 1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("yarn", "yarn"),
    ],
)
def test_a_local_master_repeats_tasks_unless_it_has_a_number_of_its_own(
    master: str, begun: str
) -> None:
    assert with_retries(master) == begun


S3 = "s3://bucket/state"


@pytest.mark.parametrize(
    ("master", "more", "reason"),
    [
        *((each, {"state": S3}, "is not a Spark master") for each in ("", "lokal", "local[]")),
        *((each, {"state": S3}, "is not a Spark master") for each in ("spark://", "mesos://h")),
        ("sc://host:15002", {}, "need a place"),
        ("local[2]", {"conf": {"spark.speculation": " TRUE "}}, "handle everything twice"),
        ("local[2]", {"conf": {"spark.master": "yarn"}}, "--master"),
        ("local[2]", {"conf": {"spark.remote": "sc://h"}}, "--remote"),
        ("local[2]", {"conf": {"spark.api.mode": "connect"}}, "--remote"),
        ("local[2]", {"conf": {"spark.submit.deployMode": "cluster"}}, "command is the driver"),
        ("local[2]", {"conf": {"fs.s3a.endpoint": "x"}}, "endpoint is not a Spark setting"),
        ("local[2]", {"state": "s3://key:hidden@bucket/x"}, "credentials"),
        ("local[2]", {"state": " "}, "state"),
        ("local[2]", {"wave_bytes": 0}, "wave"),
        ("local[2]", {"tasks": 0}, "tasks"),
        ("local[2]", {"tasks": 10_001}, "tasks"),
    ],
    ids=str,
)
def test_a_setting_that_a_drain_can_t_have_is_refused(
    master: str, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        SparkSettings(master, **more)


def test_what_a_drain_has_anyway_may_be_set() -> None:
    conf = {
        "spark.speculation": "false",
        "spark.api.mode": "classic",
        "spark.submit.deployMode": "client",
        "spark.executor.memory": "4g",
    }

    assert SparkSettings("local[2]", conf).conf == conf


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


def test_an_archive_has_to_be_there_and_to_be_importable(tmp_path: Path) -> None:
    good, other = tmp_path / "handlers.zip", tmp_path / "handlers.tar.gz"
    good.touch()
    other.touch()

    assert SparkSettings("local", archives=(str(good),)).archives == (str(good),)
    with pytest.raises(UsageError, match="is not an archive that Python can import"):
        SparkSettings("local", archives=(str(other),))
    with pytest.raises(UsageError, match="the file does not exist"):
        SparkSettings("local", archives=(str(tmp_path / "none.whl"),))


@pytest.mark.parametrize(
    ("master", "remote", "reason"),
    [
        ("sc://host:15002", None, "is a server of Spark Connect, not a master"),
        ("local[2]", "sc://host", "both given"),
        (None, "host:15002", "is not a server"),
        (None, "sc://host/;use_ssl=true;token=hidden", "has a token"),
    ],
)
def test_a_server_is_named_alone_and_without_a_secret(
    master: str | None, remote: str | None, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        SparkLook.of(master, {}, None, remote)
    assert "hidden" not in str(raised.value)
