"""The options of the data source, which are mostly those of Spark's own, and their errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.errors import UsageError
from drainer.kafka.backlog import COMMITTED, EARLIEST, END, Bound
from drainer.message import Origin
from drainer.spark.reading.options import OffsetRange, ReadOptions, cut_evenly

AT_SIX = Bound(time_ms=1795197600000)


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({}, None, END),
        ({"startingOffsets": "Earliest", "endingOffsets": "latest"}, EARLIEST, END),
        ({"startingOffsets": "committed", "kafka.group.id": "g"}, COMMITTED, END),
        ({"startingTimestamp": "1795197600000"}, AT_SIX, END),
        ({"STARTINGTIMESTAMP": "2026-11-20T18:00Z"}, AT_SIX, END),
        ({"endingTimestamp": " 2026-11-20T19:00+01:00 "}, None, AT_SIX),
        (
            {
                "startingOffsets": '{"t": {"0": 100, "3": -2}, "u": {"1": 0}}',
                "endingOffsets": '{"t": {"0": 250, "3": 40}, "u": {"1": -1}}',
            },
            {"t": {0: Bound(offset=100), 3: EARLIEST}, "u": {1: Bound(offset=0)}},
            {"t": {0: Bound(offset=250), 3: Bound(offset=40)}, "u": {1: END}},
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t": {"0": 1795197600000}}',
                "endingOffsetsByTimestamp": '{"t": {"0": "2026-11-20T18:00Z"}}',
            },
            {"t": {0: AT_SIX}},
            {"t": {0: AT_SIX}},
        ),
    ],
)
def test_a_start_and_an_end_are_words_times_or_offsets_by_partition(
    options: dict[str, str], start: object, end: object
) -> None:
    parsed = ReadOptions.parse({"subscribe": "t", **options})

    assert (parsed.start, parsed.end) == (start, end)


def test_what_begins_with_kafka_is_a_property_of_the_client_or_its_group() -> None:
    parsed = ReadOptions.parse(
        {
            "subscribe": "t, u",
            "kafka.bootstrap.servers": "a:1",
            "kafka.isolation.level": "read_committed",
            "kafka.sasl.password": "hush",
            "kafka.group.id": "spark",
        }
    )

    assert parsed.settings().bootstrap_servers == "a:1"
    assert parsed.settings().isolation == "read_committed"
    assert parsed.settings().properties["sasl.password"] == "hush"
    assert (parsed.topics, parsed.group, parsed.start) == ({"t": (), "u": ()}, "spark", None)
    assert "hush" not in repr(parsed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "9"}, "is for a stream"),
        ({"startingOffsets": "latest"}, "nothing to read"),
        ({"startingOffsets": '{"t": {"0": 5, "1": -1}}'}, "nothing to read"),
    ],
)
def test_a_batch_refuses_what_only_a_stream_can_do(options: dict[str, str], message: str) -> None:
    parsed = ReadOptions.parse({"subscribe": "t", **options})
    parsed.ensure_stream()

    with pytest.raises(UsageError, match=message):
        parsed.ensure_batch()


@pytest.mark.parametrize(
    "options",
    [
        {"endingTimestamp": "1795197600000"},
        {"endingOffsets": '{"t": {"0": 250}}'},
    ],
)
def test_a_stream_refuses_an_end(options: dict[str, str]) -> None:
    parsed = ReadOptions.parse({"subscribe": "t", **options})
    parsed.ensure_batch()

    with pytest.raises(UsageError, match="an end is for a batch") as raised:
        parsed.ensure_stream()
    assert "availableNow" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no topic"),
        ({"subscribe": " "}, "no topic"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "subscribe and assign set the same"),
        ({"assign": '{"t": []}'}, "of length >= 1"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions='0': .* >= 1"),
        ({"subscribe": "t", "minPartitions": "four"}, "minPartitions='four': .*`int`"),
        ({"subscribe": "t", "startingOffsets": "now"}, "startingOffsets='now': "),
        ({"subscribe": "t", "startingOffsets": "committed"}, "committed needs a group"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "-3 is not .* nor -2, -1"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': .* >= 1"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, "-2 is not .* nor -1"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": true}}'}, "got `bool`"),
        ({"subscribe": "t", "startingTimestamp": "yesterday"}, "startingTimestamp='yesterday'"),
        (
            {"subscribe": "t", "startingOffsets": "earliest", "startingTimestamp": "1"},
            "startingOffsets and startingTimestamp",
        ),
        ({"subscribe": "t", "includeHeaders": "maybe"}, "includeHeaders='maybe'"),
        ({"subscribe": "t", "failOnDataLoss": "false"}, "never skips lost records silently"),
        ({"path": "orders"}, "path is unknown"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        ReadOptions.parse(options)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sasl.password", "clientConfig"),
        ("startOffsets", "Did you mean startingOffsets?"),
        ("bootstrap.servers", "Did you mean kafka.bootstrap.servers?"),
        ("topic", "Use one of subscribe, assign, "),
    ],
)
def test_an_unknown_option_is_refused_and_its_value_not_repeated(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"{re.escape(name)} is unknown") as raised:
        ReadOptions.parse({"subscribe": "t", name: "hush"})
    assert "hush" not in f"{raised.value}{raised.value.hint}"
    assert hint in (raised.value.hint or "")


def test_options_hold_no_secret_of_the_file_that_they_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nssl.key.password=hush\n")

    parsed = ReadOptions.parse({"subscribe": "t", "clientConfig": str(file)})

    assert parsed.settings().properties["ssl.key.password"] == "hush"
    assert parsed.settings().isolation == "read_uncommitted"  # as in Spark's source
    assert "hush" not in repr(parsed)


@pytest.mark.parametrize(
    ("ranges", "tasks", "cuts"),
    [
        ([(10, 20)], 1, [(10, 20)]),
        ([(10, 20)], 3, [(10, 13), (13, 16), (16, 20)]),
        ([(10, 12)], 5, [(10, 11), (11, 12)]),
        ([(10, 10)], 5, []),
        ([(0, 60), (0, 20), (5, 5), (0, 1)], 4, [(0, 20), (20, 40), (40, 60), (0, 20), (0, 1)]),
    ],
)
def test_ranges_are_cut_evenly_and_nothing_is_left_out(
    ranges: list[tuple[int, int]], tasks: int, cuts: list[tuple[int, int]]
) -> None:
    whole = [OffsetRange(Origin("t", "id", n), *range_) for n, range_ in enumerate(ranges)]

    assert [(cut.start, cut.end) for cut in cut_evenly(whole, tasks)] == cuts
