"""The verbs: read, split and handle, on DataFrames."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as columns

from drainer.engine.checkpointer import JOURNAL_SLOWEST_S
from drainer.errors import DrainerError, Refused, UsageError
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.model.terms import PayloadSettings
from drainer.spark import handle, read, split
from drainer.spark.task import outcomes, table
from kafka.sender import letters_in
from kafka.topic import eventually
from spark import kinds
from spark.story import HANDLER, Story
from spark.test_drain import messages

KINDS = f"{Path(kinds.__file__)}"


def read_back(story: Story) -> DataFrame:
    assert story.spark is not None
    return read(story.spark, topic=story.topic, client=client_of(story))


def client_of(story: Story) -> dict[str, object]:
    return {"bootstrap.servers": story.settings.bootstrap_servers}


def options_of(story: Story, **more: str) -> dict[str, str]:
    return {"record": str(story.record.path), "life": "1", **more}


def subs_of(story: Story) -> DataFrame:
    """The sub-messages of the story's topic."""
    return split(read_back(story), story.handler, options=options_of(story))


def handled(story: Story, subs: DataFrame, **named: Any) -> DataFrame:
    options = options_of(story, **named.pop("options", {}))
    return handle(subs, story.handler, options=options, **{"concurrency": 20, **named})


def table_of(spark: SparkSession, values: Sequence[object], topic: str | None = "old") -> DataFrame:
    """A table of messages with these values, as JSON, in two partitions."""
    rows = [
        (b"one", json.dumps(value).encode(), topic, number % 2, number // 2, AT)
        for number, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SCHEMA)


AT = datetime(2026, 11, 20, 18, 0, 0, 123_000, tzinfo=UTC)
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
VALUES = [["a", "b"], ["a", "c"], [], ["b", "a", "a"]] * 5
SUBS = sum(map(len, VALUES))


def test_a_topic_is_read_split_and_handled_in_order_with_an_outcome_for_each(
    story: Story,
) -> None:
    story.fill(messages(300, 4), messages(200, 5))
    subs = subs_of(story)

    with pytest.warns(UserWarning, match="each action") as warned:
        outcomes = handled(story, subs)
    assert Path(warned[0].filename).name == "test_verbs.py"
    rows = outcomes.collect()

    story.ensure_all()
    assert {(row.partition, row.offset, row["index"]) for row in rows} == story.everything
    assert len(rows) == len(story.everything)
    assert {(row.outcome, row.attempts, row.error, row.letter) for row in rows} == {
        ("done", 1, None, None)
    }
    assert all(row.started <= row.ended for row in rows)
    assert {row.id for row in rows} == {
        f"{story.topic}:{p}:{o}:{i}" for p, o, i in story.everything
    }


def test_a_table_of_archived_messages_is_handled_after_a_filter(
    story: Story, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        (None, json.dumps(["a", "b", ["c", "d"]]).encode(), "old", 3, n, None) for n in range(50)
    ]
    archive = spark.createDataFrame(rows, SCHEMA).repartition(5)
    subs = split(archive, story.handler, one_shard=True, options=options_of(story))
    chosen = subs.where(columns.col("key") != "b")

    outcomes = handled(story, chosen, tasks=1, journal=str(tmp_path / "journal"))
    found = outcomes.groupBy("key").count()

    assert {row.key: row["count"] for row in found.collect()} == {"a": 50, "('c', 'd')": 50}
    story.record.check_order()


def test_with_a_journal_everything_is_handled_once_whatever_is_asked_of_the_outcomes(
    story: Story, tmp_path: Path
) -> None:
    story.fill(messages(100, 4))
    subs = subs_of(story)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        outcomes = handled(story, subs, journal=str(tmp_path / "journal"))

    assert outcomes.count() == len(story.everything)
    assert len(outcomes.collect()) == len(story.everything)
    again = handled(story, subs, journal=str(tmp_path / "journal"), tasks=7)
    assert again.count() == len(story.everything)

    story.ensure_all()
    assert story.repeated == 0
    with pytest.raises(Refused, match="has the outcomes of"):
        handle(subs, f"{HANDLER}:Whole", journal=str(tmp_path / "journal"))


def test_a_query_that_failed_goes_on_where_its_journal_ends(story: Story, tmp_path: Path) -> None:
    story.fill(messages(200, 7))
    subs = subs_of(story)
    journal = str(tmp_path / "journal")
    none = FailureSettings(retries=0)
    with pytest.raises(Exception, match="the document is locked") as raised:
        handled(story, subs, options={"bad": "k7"}, failures=none, journal=journal).count()
    assert "with a journal, it goes on" in str(raised.value)
    begun = len(story.record.done())

    assert handled(story, subs, journal=journal).count() == len(story.everything)

    assert 0 < begun < len(story.everything)
    story.ensure_all()
    assert len(story.record.done()) == len(story.everything)


def test_what_is_given_up_has_its_error(story: Story) -> None:
    story.fill([["bad", "k1"]] * 3, [["k2", "k3"]] * 3)
    subs = subs_of(story)
    policy = FailureSettings(
        retries=1, retry_delay_s=0.01, on_failure=OnFailure.SKIP, breaker=False
    )

    rows = handled(story, subs, options={"bad": "bad", "skip": "k2"}, failures=policy).collect()

    found = defaultdict(set)
    for row in rows:
        found[row.key].add((row.outcome, row.attempts, row.error and "locked" in row.error))
    assert found["bad"] == {("failed", 2, True)}
    assert found["k2"] == {("skipped", 1, None)}
    assert found["k1"] == found["k3"] == {("done", 1, None)}


def test_barriers_and_several_keys_need_one_shard_and_one_task(story: Story) -> None:
    story.fill([["k1", None, "k2"], [["k1", "k2"], "k3"]])
    with pytest.raises(Exception, match=r"split\(…, one_shard=True\), handle\(…, tasks=1\)"):
        subs_of(story).collect()
    subs = split(read_back(story), story.handler, one_shard=True, options=options_of(story))
    with pytest.raises(Exception, match=r"with one_shard=True, and there are 2 tasks"):
        handled(story, subs, tasks=2).collect()
    assert not story.record.lines()

    handled(story, subs, tasks=1).collect()

    story.ensure_all()


def test_rows_that_were_split_apart_are_handled_together_in_order(story: Story) -> None:
    story.fill(messages(60, 4, keys=5), messages(60, 5, keys=5))
    subs, options = subs_of(story), options_of(story)
    parts = (
        split(read_back(story).where(f"offset % 3 = {part}"), story.handler, options=options)
        for part in range(3)
    )
    whole = split(read_back(story), story.handler, one_shard=True, options=options)
    apart = reduce(DataFrame.union, parts)
    with pytest.raises(Exception, match=r"handle\(…, tasks=1\)"):
        handled(story, apart.union(whole), tasks=2).collect()
    story.record.path.unlink(missing_ok=True)

    assert apart.select("key", "shard").distinct().count() == 5
    assert handled(story, apart.union(subs), tasks=3).count() == len(story.everything)
    story.ensure_all()
    story.record.path.unlink()
    assert handled(story, whole.union(apart), tasks=1).count() == len(story.everything)

    story.ensure_all()


def written(rows: DataFrame, folder: Path) -> DataFrame:
    rows.write.parquet(str(folder / "table"))
    return rows.sparkSession.read.parquet(str(folder / "table"))


SHAPES: dict[str, Callable[[DataFrame, Path], DataFrame]] = {
    "unsorted": lambda rows, _: rows.orderBy(columns.rand(7)).repartition(3),
    "repeated": lambda rows, _: rows.union(rows.repartition(3)),
    "cached": lambda rows, _: rows.cache(),
    "written": written,
    "limited": lambda rows, _: rows.limit(100),
    "without time": lambda rows, _: rows.drop("timestamp"),
    "other time": lambda rows, _: retyped(rows, timestamp="timestamp_ntz"),
    "texts": lambda rows, _: retyped(rows, key="string", value="string"),
    "numbers": lambda rows, _: retyped(rows, partition="bigint", offset="int"),
    "no topic": lambda rows, _: rows.withColumn("topic", columns.lit(None).cast("string")),
}


def retyped(rows: DataFrame, **types: str) -> DataFrame:
    return rows.withColumns({name: columns.col(name).cast(types[name]) for name in types})


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_may_have_any_shape(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    rows = SHAPES[shape](table_of(spark, VALUES), tmp_path)

    found = handle(split(rows, f"{KINDS}:Plain"), f"{KINDS}:Plain").collect()

    assert Counter(row.key for row in found) == Counter(key for value in VALUES for key in value)
    assert len({(row.partition, row.offset, row["index"]) for row in found}) == SUBS


def test_tables_of_several_topics_are_handled_at_once(spark: SparkSession) -> None:
    both = table_of(spark, VALUES).union(table_of(spark, VALUES, topic="older"))

    found = handle(split(both, f"{KINDS}:Plain"), f"{KINDS}:Plain").groupBy("topic").count()

    assert {row.topic: row["count"] for row in found.collect()} == {"old": SUBS, "older": SUBS}


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.drop("offset"),
        lambda rows: retyped(rows, timestamp="bigint"),
        lambda rows: retyped(rows, partition="string"),
        lambda rows: rows.withColumn("headers", columns.create_map()),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_refused_at_once(
    spark: SparkSession, change: Callable[[DataFrame], DataFrame]
) -> None:
    with pytest.raises(UsageError, match=r"no column offset|the column \w+ is a"):
        split(change(table_of(spark, VALUES)), f"{KINDS}:Plain")


def test_a_message_without_a_place_or_two_of_one_place_fail_the_query(spark: SparkSession) -> None:
    rows = table_of(spark, VALUES)
    for name in ("shard", "topic", "index"):
        subs = split(rows, f"{KINDS}:Plain").withColumn(name, columns.lit(None).cast("int"))
        subs = subs.withColumn("topic", columns.col("topic").cast("string"))
        with pytest.raises(Exception, match=f"a row of sub-messages has no {name}"):
            handle(subs, f"{KINDS}:Plain").collect()
    for offset in (None, -1):
        unplaced = rows.withColumn("offset", columns.lit(offset).cast("long"))
        with pytest.raises(Exception, match="no place in an order"):
            split(unplaced, f"{KINDS}:Plain").collect()
    other = table_of(spark, [["x", "y", "z"]])
    subs = split(rows.union(other), f"{KINDS}:Plain", one_shard=True)
    with pytest.raises(Exception, match=r"two rows have the place old/0/0\[0\], and differ"):
        handle(subs, f"{KINDS}:Plain", tasks=1).collect()


@pytest.mark.parametrize("kind", ["Plain", "Awaited", "Batched", "InLanes", "Coalesced", "Whole"])
def test_every_kind_of_handler_has_an_outcome_for_each_sub_message(
    spark: SparkSession, kind: str
) -> None:
    reference = f"{KINDS}:{kind}"

    rows = handle(split(table_of(spark, VALUES), reference), reference).collect()

    assert len(rows) == SUBS
    assert {(row.outcome, row.attempts, row.error) for row in rows} == {("done", 1, None)}
    assert all(row.started <= row.ended for row in rows)


@pytest.mark.parametrize(
    ("kind", "payloads"), [("Default", {}), ("Decoded", {"value_format": "json"})]
)
def test_a_message_that_nothing_splits_is_one_sub_message(
    spark: SparkSession, kind: str, payloads: dict[str, str]
) -> None:
    reference, settings = f"{KINDS}:{kind}", PayloadSettings(**payloads)  # type: ignore[arg-type]
    subs = split(table_of(spark, VALUES), reference, payloads=settings)

    rows = handle(subs, reference, payloads=settings).collect()

    assert {(row.outcome, row.attempts) for row in rows} == {("done", 1)}
    assert len(rows) == len(VALUES)


def test_the_headers_of_a_message_arrive(spark: SparkSession) -> None:
    pairs = [("trace", "binary('7')"), ("empty", "cast(null as binary)")]
    each = ", ".join(f"named_struct('key', '{name}', 'value', {value})" for name, value in pairs)
    rows = table_of(spark, VALUES).withColumn("headers", columns.expr(f"array({each})"))

    found = handle(split(rows, f"{KINDS}:Headed"), f"{KINDS}:Headed").collect()

    assert {row.outcome for row in found} == {"done"}


def test_split_is_called_when_the_handler_is_open(spark: SparkSession) -> None:
    reference, options = f"{KINDS}:Opened", {"prefix": "p-"}
    subs = split(table_of(spark, VALUES), reference, options=options)

    rows = handle(subs, reference, options=options).collect()

    assert {row.key for row in rows} == {"p-a", "p-b", "p-c"}


def test_keys_and_payloads_that_no_column_can_hold_arrive_as_they_are(spark: SparkSession) -> None:
    subs = split(table_of(spark, VALUES), f"{KINDS}:Odd")

    rows = handle(subs, f"{KINDS}:Odd").collect()

    assert {(row.key, row.outcome) for row in rows} == {
        ("\\ud800", "done"),
        ("('a', 1)", "done"),
        ("7", "done"),
    }
    with pytest.raises(Exception, match=r"can't send the payload of old/[01]/\d+\[0\]"):
        split(table_of(spark, VALUES), f"{KINDS}:Unpicklable").collect()


def test_the_error_of_a_failed_attempt_stays_when_a_later_one_succeeds(spark: SparkSession) -> None:
    policy = FailureSettings(retry_delay_s=0.01)
    subs = split(table_of(spark, [["a"]]), f"{KINDS}:Flaky")

    (row,) = handle(subs, f"{KINDS}:Flaky", failures=policy).collect()

    assert (row.outcome, row.attempts, row.error) == ("done", 3, "ValueError: not yet")


def test_a_rejected_message_is_a_row_whose_outcome_a_setting_decides(story: Story) -> None:
    story.fill([["k1"], "!ValueError", ["k2"], "!Skip"])
    subs = subs_of(story)

    rejected = subs.where("rejected is not null").orderBy("offset").collect()

    assert [row.offset for row in rejected] == [1, 3]
    assert rejected[0].rejected.startswith("ValueError: malformed")
    with pytest.raises(Exception, match=r"split failed at .*/0/1: ValueError: malformed"):
        handled(story, subs).collect()
    skipping = FailureSettings(on_split_failure=OnFailure.SKIP, max_failures=Limit())
    rows = handled(story, subs, failures=skipping).orderBy("offset").collect()
    assert [(row.outcome, row.attempts) for row in rows] == [
        *(("done", 1), ("failed", 0)),
        *(("done", 1), ("skipped", 0)),
    ]
    assert "malformed" in rows[1].error
    topic = f"{story.topic}.dead"
    dead = FailureSettings(
        on_split_failure=OnFailure.DEAD_LETTER, dead_letter_topic=topic, max_failures=Limit()
    )
    rows = handled(story, subs, failures=dead, client=client_of(story)).collect()
    assert {row.letter for row in rows if row.outcome == "dead"} == {topic}
    (letter,) = letters_in(story.settings.bootstrap_servers, topic)
    assert (letter.topic, letter.message_offset, letter.payload) == (story.topic, 1, b"!ValueError")


def test_what_makes_no_sense_is_refused_before_anything_runs(spark: SparkSession) -> None:
    reference = f"{KINDS}:Plain"
    subs = split(table_of(spark, VALUES), reference)
    park, dead = (
        FailureSettings(on_failure=each) for each in (OnFailure.PARK, OnFailure.DEAD_LETTER)
    )
    for match, named in (
        ("can't park", {"failures": park}),
        ("a topic and a client", {"failures": dead}),
        ("syntax error", {"failures": FailureSettings(skip=("sub_key ==",))}),
        ("message.value", {"failures": FailureSettings(skip=("message.value.kind == 'x'",))}),
        ("concurrency is 2", {"concurrency": 2, "tasks": 3}),
        ("tasks is 0", {"tasks": 0}),
    ):
        with pytest.raises(DrainerError, match=match):
            handle(subs, reference, **named)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="can't take a stream"):
        handle(stream, reference)


WITHOUT_DATA_SOURCES = """
import sys

sys.modules["pyspark.sql.datasource"] = None  # PySpark 3.5 has no such module.
from drainer.errors import UsageError
from drainer.spark import handle, read, split

try:
    read(None, topic="orders", client={"bootstrap.servers": "localhost:9092"})
except UsageError as error:
    print(handle, split, error, error.hint)
"""


def test_without_data_sources_in_python_only_read_is_refused() -> None:
    command = [sys.executable, "-c", WITHOUT_DATA_SOURCES]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "function handle" in ended.stdout
    assert "function split" in ended.stdout
    assert "read() needs PySpark 4.0" in ended.stdout
    assert 'spark.read.format("kafka")' in ended.stdout


def test_the_concurrency_and_the_rate_are_those_of_all_tasks_together(story: Story) -> None:
    story.fill([[f"k{number}" for number in range(30)]])
    subs = subs_of(story)

    handled(story, subs, concurrency=3, tasks=2, options={"pause_ms": "30"}).collect()
    begun = [line.at_s for line in story.record.lines() if line.mark == "begun"]
    handled(story, subs, tasks=2, failures=FailureSettings(rate=40)).collect()

    assert story.record.most_at_once(until_s=begun[-1] + 0.02) <= 3
    again = [line.at_s for line in story.record.lines() if line.mark == "begun"][len(begun) :]
    assert again[-1] - again[0] > 0.3


def test_a_query_ends_when_too_many_are_given_up(story: Story) -> None:
    story.fill([["bad", "worse", "k1"]] * 30)
    policy = FailureSettings(
        retries=0, on_failure=OnFailure.SKIP, breaker=False, max_failures=Limit(10)
    )

    with pytest.raises(Exception, match="gave up 6 sub-messages"):
        handled(story, subs_of(story), options={"bad": "bad,worse"}, failures=policy).collect()


def test_the_order_is_kept_under_the_settings_of_the_caller(story: Story) -> None:
    assert story.spark is not None
    story.fill(messages(150, 4, keys=5), messages(100, 5, keys=5))
    conf = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1KB",
        "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1KB",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.caseSensitive": "true",
    }
    before = {name: str(story.spark.conf.get(name)) for name in conf}
    try:
        for name, value in conf.items():
            story.spark.conf.set(name, value)
        rows = handled(story, subs_of(story), tasks=3).collect()
    finally:
        for name, value in before.items():
            story.spark.conf.set(name, value)

    assert len(rows) == len(story.everything)
    story.ensure_all()


def test_a_journal_has_outcomes_of_what_was_handled_and_no_others(
    story: Story, tmp_path: Path
) -> None:
    story.fill([["k1", "k2"], ["k1", "k3"]] * 20)
    subs, journal = subs_of(story), tmp_path / "journal"
    first = subs.where("offset < 10")

    assert handled(story, first, journal=journal).count() == 20
    assert handled(story, subs.where("offset >= 5"), journal=journal).count() == 70
    assert handled(story, first.where("key = 'k1'"), journal=journal).count() == 10

    story.ensure_all()
    assert story.repeated == 0


def test_a_journal_that_is_removed_ends_the_query(story: Story, tmp_path: Path) -> None:
    story.fill([[f"k{number}" for number in range(40)]])
    journal = tmp_path / "journal"
    outcomes = handled(story, subs_of(story), journal=journal, options={"pause_ms": "100"}, tasks=2)

    def remove() -> None:
        eventually(story.record.done, "a call ends")
        shutil.rmtree(journal)

    thread = threading.Thread(target=remove)
    thread.start()
    with pytest.raises(Exception, match=r"does not find the journal|is not there any more"):
        outcomes.collect()
    thread.join()


@pytest.mark.parametrize("keeps", [True, False], ids=["with a journal", "without"])
def test_when_a_worker_is_killed_nothing_is_lost_and_the_order_is_kept(
    story: Story, tmp_path: Path, keeps: bool
) -> None:
    story.fill(messages(200, 4), messages(200, 5))
    journal = tmp_path / "journal" if keeps else None
    outcomes = handled(
        story, subs_of(story), journal=journal, options={"pause_ms": "4"}, tasks=2, concurrency=8
    )
    victims = list[int]()

    def kill() -> None:
        eventually(lambda: len(story.record.done()) > 400, "half is done", 60)
        victims.append(story.record.pids("done")[-1])
        os.kill(victims[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    rows = outcomes.collect()
    thread.join()

    assert len(rows) == len(story.everything)
    story.ensure_all()
    if keeps:
        # The calls in flight, and those of the last moment before the journal was written.
        assert story.repeated < 4 + 2 * len(story.everything) * JOURNAL_SLOWEST_S / took_s(story)


def took_s(story: Story) -> float:
    lines = story.record.lines()
    return lines[-1].at_s - lines[0].at_s


@given(
    st.lists(st.tuples(st.integers(0, 2), st.text("abc", max_size=6)), max_size=30),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_no_cut_between_batches_changes_what_a_message_has(
    values: list[tuple[int, str]], cuts: list[int]
) -> None:
    rows = [
        (letter, 0, "t", number, offset, index, len(value), letter.encode(), *[None] * 6)
        for number, group in groupby(sorted(values, key=lambda each: each[0]), lambda e: e[0])
        for offset, (_, value) in enumerate(group)
        for index, letter in enumerate(value)
    ]
    batches, at = list[pa.RecordBatch](), 0
    while at < len(rows):
        step = cuts[len(batches) % len(cuts)]
        batches.append(table.batch_of(rows[at : at + step], table.SUBS))
        at += step

    found = list(outcomes.runs_of(batches))

    assert [
        (message.partition, message.offset, sub.index, sub.key)
        for run in found
        for message in run
        for sub in message.subs
    ] == [(row[3], row[4], row[5], row[0]) for row in rows]
    places = [(message.partition, message.offset) for run in found for message in run]
    assert len(places) == len(set(places)), "no message comes in two parts"
