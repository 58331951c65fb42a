"""The verbs: read, split and handle, on DataFrames."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as columns

from drainer.errors import Refused, UsageError
from drainer.handler import Handler
from drainer.message import Message, SubMessage
from drainer.model.settings import FailureSettings, OnFailure
from drainer.spark import handle, read, split
from drainer.spark.task import table
from spark.story import HANDLER, Story
from spark.test_drain import messages

OPTIONS = {"life": "1"}


def read_back(story: Story) -> DataFrame:
    assert story.spark is not None
    servers = story.settings.bootstrap_servers
    return read(story.spark, topic=story.topic, client={"bootstrap.servers": servers})


def handled(story: Story, subs: DataFrame, **named: object) -> DataFrame:
    options = {"record": str(story.record.path), **OPTIONS}
    return handle(subs, story.handler, concurrency=20, options=options, **named)  # type: ignore[arg-type]


def test_a_topic_is_read_split_and_handled_in_order_with_an_outcome_for_each(
    story: Story,
) -> None:
    story.fill(messages(300, 4), messages(200, 5))
    subs = split(read_back(story), story.handler, options=OPTIONS)

    with pytest.warns(UserWarning, match="each action"):
        outcomes = handled(story, subs)
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
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    )
    archive = spark.createDataFrame(rows, schema).repartition(5)
    subs = split(archive, HANDLER_REF, shards=1, options=OPTIONS)
    chosen = subs.where(columns.col("key") != "b")

    found = handled(story, chosen, journal=str(tmp_path / "journal")).groupBy("key").count()

    assert {row.key: row["count"] for row in found.collect()} == {"a": 50, "('c', 'd')": 50}
    story.record.check_order()


HANDLER_REF = f"{HANDLER}:OnTheLoop"


def test_with_a_journal_everything_is_handled_once_whatever_is_asked_of_the_outcomes(
    story: Story, tmp_path: Path
) -> None:
    story.fill(messages(100, 4))
    subs = split(read_back(story), story.handler, options=OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    subs = split(read_back(story), story.handler, options=OPTIONS)
    journal = str(tmp_path / "journal")
    options = {"record": str(story.record.path), "bad": "k7", **OPTIONS}
    none = FailureSettings(retries=0)
    with pytest.raises(Exception, match="the document is locked"):
        handle(subs, story.handler, options=options, failures=none, journal=journal).count()
    begun = len(story.record.done())

    assert handled(story, subs, journal=journal).count() == len(story.everything)

    assert 0 < begun < len(story.everything)
    story.ensure_all()
    assert len(story.record.done()) == len(story.everything)


def test_what_is_given_up_has_its_error(story: Story) -> None:
    story.fill([["bad", "k1"]] * 3, [["k2", "k3"]] * 3)
    subs = split(read_back(story), story.handler, options=OPTIONS)
    policy = FailureSettings(
        retries=1, retry_delay_s=0.01, on_failure=OnFailure.SKIP, breaker=False
    )
    options = {"record": str(story.record.path), "bad": "bad", "skip": "k2", **OPTIONS}

    rows = handle(subs, story.handler, options=options, failures=policy).collect()

    found = defaultdict(set)
    for row in rows:
        found[row.key].add((row.outcome, row.attempts, row.error and "locked" in row.error))
    assert found["bad"] == {("failed", 2, True)}
    assert found["k2"] == {("skipped", 1, None)}
    assert found["k1"] == found["k3"] == {("done", 1, None)}


def test_barriers_and_several_keys_need_one_shard(story: Story) -> None:
    story.fill([["k1", None, "k2"], [["k1", "k2"], "k3"]])
    with pytest.raises(Exception, match=r"split\(…, shards=1\)"):
        split(read_back(story), story.handler, options=OPTIONS).collect()
    with pytest.raises(UsageError, match="no column"):
        split(read_back(story).drop("offset"), story.handler)


class Echo(Handler):
    """One sub-message for each letter of a value."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        for letter in (message.value or b"").decode():
            yield SubMessage(letter, {"letter": letter})

    def handle(self, sub: SubMessage) -> None: ...


@given(
    st.lists(st.tuples(st.integers(0, 2), st.text("abc", max_size=6)), max_size=30),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_no_cut_between_batches_changes_what_a_message_has(
    values: list[tuple[int, str]], cuts: list[int]
) -> None:
    rows = [
        (letter, 0, "t", number, offset, index, len(value), letter.encode(), None, *[None] * 4)
        for number, group in groupby(sorted(values, key=lambda each: each[0]), lambda e: e[0])
        for offset, (_, value) in enumerate(group)
        for index, letter in enumerate(value)
    ]
    batches, at = list[pa.RecordBatch](), 0
    while at < len(rows):
        step = cuts[len(batches) % len(cuts)]
        batches.append(table.batch_of(rows[at : at + step], table.SUBS))
        at += step

    found = list(table.runs_of(batches))

    assert [
        (message.partition, message.offset, sub.index, sub.key)
        for run in found
        for message in run
        for sub in message.subs
    ] == [(row[3], row[4], row[5], row[0]) for row in rows]
    places = [(message.partition, message.offset) for run in found for message in run]
    assert len(places) == len(set(places)), "no message comes in two parts"
