"""A whole look by tasks of Spark finds what one by a single process finds."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.errors import Refused
from drainer.insight import notebook
from drainer.insight.inspection import Inspection, InspectRequest, inspect_backlog
from drainer.insight.on_spark import survey_on_spark
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.loader import load_handler
from drainer.spark.session.session import Session
from kafka.reader import numbered
from kafka.topic import PASSWORD, USER, Topic
from scenarios.brokers import Broker
from spark.story import Story

HANDLER = """
import json, os
from drainer import Barrier, Handler, SubMessage

class Rename(SubMessage): pass

ODD = {
    "bytes": b"\\xff\\x00", "tuple": ("a", (b"b", None)), "surrogate": "\\udc80", "long": "x" * 700,
}

class Documents(Handler):
    def split(self, message):
        for op in json.loads(message.value):
            match op:
                case "barrier":
                    yield Barrier({})
                case "broken":
                    raise ValueError(f"no such operation in {message.offset}")
                case {"odd": odd}:
                    yield SubMessage(ODD[odd], b'{"kind": "odd"}')
                case {"keys": keys}:
                    yield Rename(keys=tuple(keys))
                case {"doc": doc, **rest}:
                    yield SubMessage(doc, rest)

    def handle(self, sub):
        raise AssertionError("nothing is handled")
"""

# Fields with the time of the inspection, or its duration.
_OF_THE_MOMENT = {"taken_ms", "age_s", "ages", "reading"}


@pytest.fixture
def reference(tmp_path: Path, topic_name: str) -> str:
    file = tmp_path / f"handler_{topic_name.replace('-', '_')}.py"
    file.write_text(HANDLER)
    return f"{file}:Documents"


class Looks:
    """Looks at a topic's whole backlog, from both sides."""

    def __init__(self, spark: SparkSession, cluster: Cluster, topic: str) -> None:
        self._spark = spark
        self._cluster = cluster
        self._topic = topic

    def on_spark(
        self,
        reference: str | None,
        tasks: int | None = None,
        skip: tuple[str, ...] = (),
    ) -> Inspection:
        settings = self._cluster.settings
        survey = partial(survey_on_spark, Session(self._spark), settings, tasks)
        return inspect_backlog(self._cluster, self._request(reference, skip), survey_all=survey)

    def in_process(self, reference: str | None, skip: tuple[str, ...] = ()) -> Inspection:
        return inspect_backlog(self._cluster, self._request(reference, skip))

    def _request(self, reference: str | None, skip: tuple[str, ...]) -> InspectRequest:
        handler = load_handler(reference) if reference else None
        return InspectRequest(
            self._topic, "no-one", handler, from_="earliest", messages=None, skip=skip
        )


@pytest.fixture
def looks(spark: SparkSession, cluster: Cluster, topic_name: str) -> Looks:
    return Looks(spark, cluster, topic_name)


def facts(found: Inspection) -> dict[str, Any]:
    """All that does not depend on when it was looked."""
    body = found.as_json()
    for part in body["partitions"].values():
        part.pop("age_s")
    kept = {name: value for name, value in body.items() if name not in _OF_THE_MOMENT}
    return {**kept, "read": (found.reading.full, found.reading.offsets)}


def operations(count: int, seed: int = 7) -> list[str]:
    """Three a message, of which one is on the hot document."""
    draw = random.Random(seed)

    def doc() -> str:
        return f"d{int(draw.paretovariate(0.5))}"

    return [
        json.dumps([{"doc": d, "kind": draw.choice("ab")} for d in ("hot", doc(), doc())])
        for _ in range(count)
    ]


def test_what_tasks_find_is_what_one_process_finds(
    looks: Looks,
    bootstrap: str,
    topic_name: str,
    reference: str,
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)  # of which the last one is empty
    odd = [json.dumps([{"odd": name} for name in ("bytes", "tuple", "surrogate", "long")])] * 20
    odd += ['["barrier"]', "[]", '[{"keys": ["a", "b"]}, {"doc": "a"}]', "no JSON", '["broken"]']
    for partition, values in ((0, operations(600)), (1, [*operations(100), *odd])):
        topic.produce(values, partition=partition, key=b"customer")
        topic.transact(operations(90), commit=False, partition=partition)
    skip = of_a, big = "sub_key == 'hot' and payload.kind == 'a'", "payload.size > 3"

    ours = looks.on_spark(reference, 5, skip)
    theirs = looks.in_process(reference, skip)

    ours_by, theirs_by = facts(ours), facts(theirs)
    assert ours_by.pop("why").keys() == theirs_by.pop("why").keys() == {of_a, big}
    assert ours_by == theirs_by
    assert ours.skew is not None
    assert ours.hot is not None
    assert (ours.hot.name, ours.hot.count, ours.skew.barriers) == ("'hot'", 700, 1)
    assert [share.name for share in ours.skew.rules] == [of_a]
    assert ours.failures is not None
    assert ours.failures.messages == 2
    assert ours.reading.tasks == 5


def test_no_backlog_needs_no_task(looks: Looks, bootstrap: str, topic_name: str) -> None:
    Topic(bootstrap, topic_name)

    ours = looks.on_spark(None)

    assert facts(ours) == facts(looks.in_process(None))
    assert ours.reading.tasks == 0


def test_what_a_task_raises_comes_out_as_it_is(
    spark: SparkSession, cluster: Cluster, bootstrap: str, topic_name: str, tmp_path: Path
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(numbered(3))
    file = tmp_path / f"imports_{topic_name.replace('-', '_')}.py"
    file.write_text("def handle(sub): pass\n")
    handler = load_handler(str(file))
    file.write_text("raise OSError('not on this machine')\n")

    looked = InspectRequest(topic_name, "no-one", handler, from_="earliest", messages=None)
    survey = partial(survey_on_spark, Session(spark), cluster.settings, None)
    with pytest.raises(Refused, match=r"can't import the handler .*: OSError: not on this machine"):
        inspect_backlog(cluster, looked, survey_all=survey)


def test_a_password_goes_to_the_tasks_and_is_not_shown(
    spark: SparkSession, broker: Broker, topic_name: str, tmp_path: Path, events: Path
) -> None:
    Topic(broker.bootstrap_servers, topic_name).produce(operations(5))
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={USER}\nsasl.password=wrong-hush\n"
    )
    login = (f"sasl.password={PASSWORD}",)
    settings = ClientSettings.load(broker.sasl_bootstrap_servers, file, login)
    with Cluster.connect(settings, 60) as cluster:
        cluster.group("any")
        found = Looks(spark, cluster, topic_name).on_spark(None)

    assert found.messages == 5
    logs = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert Session(spark).is_remote or f"drainer inspect {topic_name}" in logs
    assert "hush" not in logs


@pytest.mark.long
def test_a_notebook_gets_what_was_found_and_what_is_expected_as_dataframes(
    spark: SparkSession, story: Story
) -> None:
    story.fill([["a", "b"]] * 30)
    what: dict[str, Any] = {
        **{"topic": story.topic, "group": story.group, "from_": "earliest"},
        **{"handler": story.handler},
        **{"client": {"bootstrap.servers": story.settings.bootstrap_servers}},
    }

    inspected = notebook.inspect(spark, **what, full=True, tasks=2)
    estimated = notebook.estimate(spark, **what, latency="100ms", concurrency=10)

    (partition,) = inspected.partitions().collect()
    assert (partition.start, partition.end, partition.messages) == (0, 30, 30)
    assert {(row.sub_key, row["count"], row.share) for row in inspected.hottest().collect()} == {
        ("'a'", 30, 0.5),
        ("'b'", 30, 0.5),
    }
    by_concurrency = {row.concurrency: row for row in estimated.concurrencies().collect()}
    assert by_concurrency[10].bound == "hottest lane"
    assert by_concurrency[10].seconds >= 3
