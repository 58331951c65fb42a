"""Drains by spark-submit on a standalone cluster, with plan and state in an object store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from command.conftest import operations
from command.process import ON_THE_LOOP, Command
from drainer.kafka.cluster import Cluster
from drainer.spark.state.state import open_objects
from drainer.store.plan_file import plan_at
from kafka.topic import Topic, eventually
from s3 import S3
from scenarios.spark_chaos.standalone import Standalone, standalone

pytestmark = pytest.mark.long

SPARK_SUBMIT = Path(pyspark.__file__).with_name("bin") / "spark-submit"
PATIENCE_S = 240.0
APP = (sys.executable, "-m", "drainer.spark.app")
IN_CLUSTER = "org.apache.spark.deploy.PythonRunner"


@pytest.fixture
def cluster_of_spark(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Standalone]:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder) as found:
        found.worker(cores=3, memory="3g")
        yield found


class Submitted:
    """A command handed to ``spark-submit``, in a group of processes that is killed at the end."""

    def __init__(self, command: Command, *words: str) -> None:
        python = f"spark.pyspark.python={sys.executable}"
        conf = ["--conf", python, "--conf", "spark.executor.memory=512m", "--driver-memory", "512m"]
        path = command.streams / f"submitted-{len(list(command.streams.iterdir()))}"
        self._line = path
        with path.open("wb") as output:
            self._process = subprocess.Popen(
                [str(SPARK_SUBMIT), *conf, *words],
                cwd=command.folder,
                env=command.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._line.read_text()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ends(self, code: int) -> None:
        assert self._process.wait(PATIENCE_S) == code, self.output

    def __enter__(self) -> Submitted:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def app() -> str:
    return subprocess.run(APP, capture_output=True, text=True, check=True).stdout.strip()


def run_words(command: Command, topic: Topic, plan: str, **options: object) -> list[str]:
    what = [*command.what(topic), *command.options(**options)]
    return ["run", *what, "--from", "earliest", "--plan", plan, "--yes", "-c", "20"]


def ensure_the_end(command: Command, topic: Topic, values: list[str], plan: str, s3: S3) -> None:
    command.ensure_drained(topic)
    assert command.committed(topic) == {0: len(values)}
    assert plan_at(plan).load().plan.account.complete
    assert open_objects(s3.uri(topic.name)).children("") == ["orders.plan.json"]
    assert command.left_behind == []


def test_a_submitted_drain_that_was_killed_is_resumed_from_its_plan_in_an_object_store(
    command: Command, cluster_of_spark: Standalone, s3: S3
) -> None:
    values = operations(600, lanes=50)
    topic = command.topic(values)
    plan = s3.uri(f"{topic.name}/orders.plan.json")
    where = ("--master", cluster_of_spark.url, "--deploy-mode", "client", app())
    with Submitted(command, *where, *run_words(command, topic, plan, pause_ms=20)) as first:
        eventually(
            lambda: len(command.record.done()) > 200 or not first.running,
            "200 are done",
            PATIENCE_S,
        )
        assert first.running, first.output
    assert 0 < len(command.record.done()) < len(values) * 2

    named = ("--handler", f"{command.handlers}:{ON_THE_LOOP}", "--yes")
    resume = ["resume", plan, *named, *command.options(pause_ms=20), "-c", "20"]
    with Submitted(command, *where, *resume) as second:
        second.ends(0)

    ensure_the_end(command, topic, values, plan, s3)


def test_a_driver_in_the_cluster_drains_by_its_plan_in_an_object_store(
    command: Command, cluster: Cluster, cluster_of_spark: Standalone, s3: S3
) -> None:
    """Standalone clusters take no Python application in cluster mode, but any class: by this one
    YARN and Kubernetes start the driver's Python, too."""
    values = operations(300, lanes=50)
    topic = command.topic(values)
    plan = s3.uri(f"{topic.name}/orders.plan.json")
    where = ["--master", cluster_of_spark.url, "--deploy-mode", "cluster", "--class", IN_CLUSTER]
    jar = next(Path(pyspark.__file__).with_name("jars").glob("spark-core_*.jar"))
    words = run_words(command, topic, plan)
    with Submitted(command, *where, jar.as_uri(), app(), "", *words) as driver:
        driver.ends(0)
    objects = open_objects(s3.uri(topic.name))
    eventually(
        lambda: (
            objects.children("") == ["orders.plan.json"]
            and plan_at(plan).load().plan.account.complete
        ),
        "the drain ends and leaves its plan",
        PATIENCE_S,
    )
    ensure_the_end(command, topic, values, plan, s3)
