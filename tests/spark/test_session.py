"""A session has what drainer's laws depend on, or there is none."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from drainer.errors import Refused, UsageError
from drainer.spark import spark_session


@pytest.mark.parametrize("key", ["spark.speculation", "spark.sql.adaptive.skewJoin.enabled"])
def test_a_setting_that_would_break_a_law_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"{key}=true is not possible: "):
        spark_session(conf={key: "true"})


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(Refused, match="Spark needs Java") as raised:
        spark_session()
    assert "JDK" in (raised.value.hint or "")


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def environment(_: object) -> str:  # its python may have another name there
        return sys.prefix

    assert spark.sparkContext.parallelize([0], 1).map(environment).collect() == [sys.prefix]
