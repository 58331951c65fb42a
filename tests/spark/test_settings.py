"""Settings of Spark are read as Spark reads them, and refused if they would break a law."""

from __future__ import annotations

import pytest

from drainer.errors import UsageError
from drainer.spark.session.settings import (
    SLICE_BYTES,
    SessionSettings,
    SparkSettings,
    with_retries,
)

LOCAL = ["local", "local[*]", "local[4]", "local[*, 3]", "local[2,4]", "local-cluster[2,1,1024]"]
REMOTE = ["spark://a:7077,b:7077", "yarn", "k8s://https://10.0.0.1:6443", "sc://host:15002"]
S3 = {"drainer.state": "s3://bucket/state"}


@pytest.mark.parametrize("master", [*LOCAL, *REMOTE])
def test_a_cluster_needs_a_state_that_all_of_it_reaches_and_a_local_master_does_not(
    master: str,
) -> None:
    if master in LOCAL:
        assert SparkSettings(master).is_local
        return
    with pytest.raises(UsageError, match="a place to record what is done") as raised:
        SparkSettings(master)
    assert "drainer.state" in (raised.value.hint or "")
    assert not SparkSettings(master, S3).is_local


def test_settings_of_drainer_are_read_and_not_given_to_spark() -> None:
    memory = {"spark.executor.memory": "4g"}
    own = {"drainer.tasks": "7", "drainer.slice": "64MiB"}

    settings = SparkSettings("yarn", memory | own | S3)

    assert settings.of_spark == memory
    assert (settings.tasks, settings.slice_bytes) == (7, 64 * 1024**2)
    assert settings.state == "s3://bucket/state"
    default = SparkSettings("local[2]")
    assert (default.tasks, default.state) == (None, None)
    assert default.slice_bytes == SLICE_BYTES


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


@pytest.mark.parametrize("master", ["", "lokal", "local[]", "spark://", "mesos://h"])
def test_what_is_not_a_master_is_refused(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark master"):
        SparkSettings(master, S3)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("spark.speculation", " TRUE ", "handle everything twice"),
        ("spark.master", "yarn", "--master"),
        ("spark.remote", "sc://h", "--master sc"),
        ("spark.api.mode", "connect", "--master sc"),
        ("spark.submit.deployMode", "cluster", "command is the driver"),
        ("fs.s3a.endpoint", "x", "endpoint is not a Spark setting"),
        ("spark.submit.pyFiles", "/dev/null,none.zip", "none.zip does not exist"),
        ("spark.archives", "none.tar.gz#environment", "none.tar.gz does not exist"),
        ("drainer.state", "s3://key:hidden@bucket/x", "credentials"),
        ("drainer.state", " ", "state"),
        ("drainer.slice", "0", r"--spark-conf drainer\.slice: a slice of no bytes"),
        ("drainer.slice", "2 pages", "is not a size"),
        ("drainer.tasks", "0", "from 1 to 10,000"),
        ("drainer.tasks", "10001", "from 1 to 10,000"),
    ],
)
def test_a_setting_that_a_drain_can_t_have_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        SparkSettings("local[2]", {name: value})


@pytest.mark.parametrize(
    ("name", "near"), [("drainer.task", "drainer.tasks"), ("drainer.slice_bytes", "drainer.slice")]
)
def test_an_unknown_setting_of_drainer_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"there is no setting {name}") as raised:
        SparkSettings("local[2]", {name: "4"})
    assert raised.value.hint == f"Did you mean {near}?"


def test_what_a_drain_has_anyway_may_be_set() -> None:
    conf = {
        "spark.speculation": "false",
        "spark.api.mode": "classic",
        "spark.submit.deployMode": "client",
        "spark.submit.pyFiles": "s3a://bucket/libs.zip,/dev/null",
    }

    assert SparkSettings("local[2]", conf).of_spark == conf


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


def test_the_address_of_a_server_has_no_secret() -> None:
    assert SessionSettings.of("sc://host:15002/;use_ssl=true", {}).is_remote
    with pytest.raises(UsageError, match="--master has a token") as raised:
        SessionSettings.of("sc://host/;use_ssl=true;token=hidden", {})
    assert "hidden" not in str(raised.value)
