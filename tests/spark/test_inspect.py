"""A whole look by tasks of Spark finds what a whole look by one process finds."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from drainer.engine.status import RuleStatus
from drainer.errors import Refused, TopicGone, UsageError
from drainer.insight.inspect import InspectRequest, Progress, inspect
from drainer.insight.inspection import Inspection
from drainer.insight.spark.survey import SparkSurvey, survey_on_spark
from drainer.insight.spark.task import Connection
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.loader import LoadedHandler, load_handler
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import RuleSettings, SkipRule
from drainer.sandbox import Broker
from kafka.reader import numbered
from kafka.topic import PASSWORD, USER, Topic

HANDLER = """
import json, os
from drainer import Barrier, Handler, SubMessage

class Rename(SubMessage): pass

ODD = {
    "bytes": b"\\xff\\x00", "none": None, "tuple": ("a", 1), "unicode": "\\u00fc\\U0001f600",
    "surrogate": "\\udc80", "long": "x" * 700, "nested": ("a", (b"b", None)),
    "one": 1, "red": "red",
}

class Documents(Handler):
    def split(self, message):
        for op in json.loads(message.value):
            match op:
                case "barrier":
                    yield Barrier({})
                case "broken":
                    raise ValueError(f"no such operation in {message.offset}")
                case "nothing":
                    yield {}
                case {"odd": odd}:
                    yield SubMessage(ODD[odd], b'{"kind": "odd"}')
                case {"keys": keys}:
                    yield Rename(keys=tuple(keys))
                case {"doc": doc, **rest}:
                    yield SubMessage(doc, rest)

    def handle(self, sub):
        raise AssertionError("nothing is handled")

class DiesOnce(Documents):
    def split(self, message):
        if message.offset == 55 and not os.path.exists(__file__ + ".died"):
            open(__file__ + ".died", "w").close()
            os._exit(3)
        return super().split(message)
"""

# What tells when it was looked, or how long that took.
_OF_THE_MOMENT = {"taken_ms", "age_s", "ages_s", "reading"}


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as connected:
        connected.group("any")  # waits for the coordinator
        yield connected


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
        self.status = RuleStatus()
        self.seen: list[tuple[int, int]] = []

    def on_spark(
        self,
        reference: str | None,
        tasks: int | None = None,
        rules: RuleSettings | None = None,
        connection: Connection | None = None,
    ) -> Inspection:
        handler = load_handler(reference) if reference else None
        bootstrap = self._cluster.settings.bootstrap_servers

        def survey(backlog: Any, progress: Progress) -> tuple[SparkSurvey, float]:
            found = survey_on_spark(
                self._spark,
                backlog,
                connection or Connection(bootstrap),
                handler,
                rules or RuleSettings(),
                tasks,
                progress,
            )
            self.status = found.rule_status
            return found, found.read_s

        look = InspectRequest(self._topic, "nobody", handler, from_="earliest", messages=None)
        return inspect(
            self._cluster, look, lambda done, total: self.seen.append((done, total)), survey
        )

    def in_process(self, reference: str | None, rules: RuleSettings | None = None) -> Inspection:
        handler = load_handler(reference) if reference else None
        rule_filter = RuleFilter(rules or RuleSettings())
        look = InspectRequest(
            self._topic,
            "nobody",
            handler,
            from_="earliest",
            messages=None,
            rule=rule_filter.skips if rules else None,
        )
        found = inspect(self._cluster, look)
        self.status = RuleStatus.of(rule_filter)
        return found


@pytest.fixture
def looks(spark: SparkSession, cluster: Cluster, topic_name: str) -> Looks:
    return Looks(spark, cluster, topic_name)


def facts(found: Inspection) -> dict[str, Any]:
    """All that does not depend on when it was looked; ages as the times that they are of."""
    body = found.as_json()
    ages = body["contents"].pop("ages_s")
    times = {name: round(found.taken_ms - age * 1000) for name, age in (ages or {}).items()}
    for part in body["partitions"].values():
        part.pop("age_s")
    kept = {name: value for name, value in body.items() if name not in _OF_THE_MOMENT}
    return {**kept, "times": times, "read": (found.reading.full, found.reading.offsets)}


def same_but_for_estimates(ours: Inspection, theirs: Inspection) -> None:
    """What one process knows exactly is equal; what it estimates is within its bounds."""
    exact, known = facts(ours), facts(theirs)
    for side in ("contents", "skew"):
        for name in ("message_keys", "sub_keys"):
            if known[side] is not None and name in known[side]:
                found, bounds = exact[side].pop(name), known[side].pop(name)
                assert found["low"] == found["estimate"] == found["high"]
                assert bounds["low"] <= found["estimate"] <= bounds["high"]
    assert exact == known


def zipf(count: int, seed: int = 7) -> list[str]:
    """Three operations a message, of which one is on the hot document."""
    draw = random.Random(seed)

    def doc() -> str:
        return f"d{int(draw.paretovariate(0.5))}"

    return [
        json.dumps([{"doc": d, "kind": draw.choice("ab")} for d in ("hot", doc(), doc())])
        for _ in range(count)
    ]


def test_a_hot_row_among_many_is_found_alike_across_partitions_holes_and_cuts(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)  # of which the last one is empty
    for partition, count in ((0, 900), (1, 300)):
        topic.produce(zipf(count, partition), partition=partition, key=b"customer")
        topic.transact(zipf(150), commit=False, partition=partition)
    topic.transact(zipf(50), commit=True)

    ours, theirs = looks.on_spark(reference, tasks=7), looks.in_process(reference)

    same_but_for_estimates(ours, theirs)
    assert ours.skew is not None
    assert ours.skew.sub_messages == 3 * 1250
    assert ours.hot is not None
    assert (ours.hot.name, ours.hot.count) == ("'hot'", 1250)
    assert ours.reading.tasks == 7
    assert looks.seen[-1] == (ours.offsets, ours.offsets)


def test_what_is_unusual_is_counted_alike(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    odd = ["bytes", "none", "tuple", "unicode", "surrogate", "long", "nested", "one", "red"]
    values = [json.dumps([{"odd": name} for name in odd]) for _ in range(40)]
    values += ['["barrier"]', "[]", '[{"keys": ["a", "b"]}, {"keys": ["a"]}, {"doc": "a"}]'] * 9
    values += ["no JSON", '[{"doc": "b"}, "broken"]', '["nothing"]', '[{"doc": ["c"]}]']
    producer = Producer({"bootstrap.servers": bootstrap})
    Topic(bootstrap, topic_name)
    for number, value in enumerate(values):
        key = (None, b"", b"k" * 300, b"\xff", "ü".encode())[number % 5]
        headers: list[tuple[str, str | bytes | None]] = [("ce_type", b"import")]
        producer.produce(topic_name, value, key, 0, headers=headers, timestamp=10**12 + number)
    producer.produce(topic_name, None, b"gone", 0)
    producer.flush()

    ours, theirs = looks.on_spark(reference, tasks=3), looks.in_process(reference)

    same_but_for_estimates(ours, theirs)
    assert ours.skew is not None
    assert ours.skew.sub_keys.estimate == len(odd) + 2  # and a, b
    assert (ours.skew.barriers, ours.skew.empty) == (9, 9)
    assert ours.failures is not None
    assert ours.failures.messages == 5
    assert "Expecting value" in ours.failures.first
    assert {kind.name for kind in ours.skew.kinds} >= {"odd", "barrier", "Rename", "import"}
    assert ours.contents.tombstones == 1


def test_without_a_handler_there_is_no_skew_and_all_the_rest(
    looks: Looks, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    for number in range(40):
        topic.produce(["v" * number], key=f"k{number % 13}".encode())

    ours, theirs = looks.on_spark(None), looks.in_process(None)

    same_but_for_estimates(ours, theirs)
    assert ours.skew is None
    assert len(ours.contents.hottest_keys) == 10
    assert ours.reading.tasks == 1  # more would not pay


def test_no_backlog_needs_no_task(looks: Looks, bootstrap: str, topic_name: str) -> None:
    Topic(bootstrap, topic_name)

    ours, theirs = looks.on_spark("count"), looks.in_process("count")

    same_but_for_estimates(ours, theirs)
    assert ours.reading.tasks == 0


def test_rules_leave_out_what_they_would_and_a_limit_counts_across_tasks(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    Topic(bootstrap, topic_name).produce([*zipf(200), '["barrier", {"keys": ["d1"]}]'])
    rules = RuleSettings(
        (
            SkipRule("of-a", "payload.kind == 'a'", ("hot",)),
            SkipRule("untold", "payload.size > 3"),
        ),
        limit_per_key=20,
    )

    ours = looks.on_spark(reference, 5, rules)
    undecided = looks.status
    theirs = looks.in_process(reference, rules)

    same_but_for_estimates(ours, theirs)
    assert ours.skew is not None
    assert {share.name for share in ours.skew.rules} == {"of-a", "limit-per-key"}
    assert undecided.undecided == looks.status.undecided
    assert undecided.why == looks.status.why
    assert undecided.undecided["untold"] > 0


def test_a_limit_and_several_sub_keys_at_once_are_for_one_process(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    Topic(bootstrap, topic_name).produce(['[{"keys": ["a", "b"]}]'])

    with pytest.raises(Refused, match="several sub-keys") as raised:
        looks.on_spark(reference, 1, RuleSettings(limit_per_key=3))

    assert "--engine process" in (raised.value.hint or "")


@pytest.mark.long
def test_more_sub_keys_than_a_process_counts_exactly_are_counted_exactly(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    values = [
        json.dumps([{"doc": f"d{n}-{m}"} for m in range(100)] + [{"doc": f"e{n % 3}"}] * (n % 3))
        for n in range(1200)
    ]
    Topic(bootstrap, topic_name).produce(values)
    exact = Counter(repr(op["doc"]) for value in values for op in json.loads(value))

    ours = looks.on_spark(reference, tasks=2)

    assert ours.skew is not None
    assert ours.skew.sub_keys.estimate == ours.skew.sub_keys.low == len(exact) == 120_002
    top = [(share.name, share.count) for share in ours.skew.hottest]
    assert top == sorted(exact.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert ours.skew.curve[-1] == (10_000, (1200 + 9998) / exact.total())


def test_a_task_that_is_tried_again_counts_once(
    looks: Looks, bootstrap: str, topic_name: str, reference: str
) -> None:
    Topic(bootstrap, topic_name).produce(zipf(100))
    dies = reference.replace(":Documents", ":DiesOnce")

    ours = looks.on_spark(dies, tasks=2)

    assert Path(f"{dies.removesuffix(':DiesOnce')}.died").exists()
    assert facts(ours) == {**facts(looks.on_spark(reference)), "handler": dies}


def test_what_a_task_raises_comes_out_as_it_is(
    spark: SparkSession, cluster: Cluster, bootstrap: str, topic_name: str, tmp_path: Path
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(numbered(3))
    file = tmp_path / f"imports_{topic_name.replace('-', '_')}.py"
    file.write_text("def handle(sub): pass\n")
    handler = load_handler(str(file))
    file.write_text("raise OSError('not on this machine')\n")

    def look(
        connection: Connection,
        handler: LoadedHandler | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        def survey(backlog: Any, progress: Progress) -> tuple[SparkSurvey, float]:
            meanwhile()
            return survey_on_spark(spark, backlog, connection, handler, RuleSettings()), 0.0

        looked = InspectRequest(topic_name, "nobody", from_="earliest", messages=None)
        inspect(cluster, looked, survey_all=survey)

    def again() -> None:
        topic.delete()
        topic.create()
        topic.produce(numbered(3))

    with pytest.raises(Refused, match="could not be imported: OSError: not on this machine"):
        look(Connection(bootstrap), handler)
    with pytest.raises(UsageError, match="no such file"):
        look(Connection(None, "no.file"))
    with pytest.raises(TopicGone) as raised:
        look(Connection(bootstrap), meanwhile=again)
    assert raised.value.exit_code == 8


def test_a_password_goes_to_the_tasks_and_is_not_shown(
    spark: SparkSession, broker: Broker, topic_name: str, tmp_path: Path, events: Path
) -> None:
    Topic(broker.bootstrap_servers, topic_name).produce(zipf(5))
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={USER}\nsasl.password=wrong-hush\n"
    )
    where = broker.sasl_bootstrap_servers
    connection = Connection(where, str(file), (f"sasl.password={PASSWORD}",))
    with Cluster.connect(connection.settings(), 60) as cluster:
        cluster.group("any")
        found = Looks(spark, cluster, topic_name).on_spark(None, connection=connection)

    assert found.messages == 5
    logs = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert f"drainer inspect {topic_name}" in logs
    assert "hush" not in logs + repr(connection)
