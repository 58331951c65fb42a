"""Options are those of ``drainer run`` or of Spark's Kafka source; errors show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.errors import UsageError
from drainer.kafka.backlog import COMMITTED, EARLIEST, Bound
from drainer.message import Origin
from drainer.spark.read.options import OffsetRange, ReadOptions, cut_evenly


def test_without_a_group_the_start_is_the_first_record_else_its_committed_offset() -> None:
    assert ReadOptions.parse({"topic": "t"}).start == EARLIEST
    of_group = ReadOptions.parse({"topic": "t", "group": "g"})
    assert (of_group.start, of_group.reader) == (COMMITTED, "g")
    assert ReadOptions.parse({"topic": "t", "group": "g", "from": "7"}).start == Bound(offset=7)


@pytest.mark.parametrize(
    ("drainers", "sparks"),
    [
        ({"topic": "t"}, {"subscribe": " t "}),
        ({"topic": "t", "partitions": "0, 2"}, {"assign": '{"t": [0, 2]}'}),
        ({"topic": "t", "from": "earliest"}, {"subscribe": "t", "startingOffsets": "earliest"}),
        (
            {"topic": "t", "from": "@2026-11-20T18:00Z"},
            {"subscribe": "t", "startingTimestamp": "1795197600000"},
        ),
        ({"topic": "t", "until": "end"}, {"subscribe": "t", "endingOffsets": "latest"}),
        (
            {"topic": "t", "until": "@2026-11-20T18:00Z"},
            {"subscribe": "t", "endingTimestamp": "1795197600000"},
        ),
        ({"topic": "t", "tasks": "4"}, {"subscribe": "t", "minPartitions": "4"}),
        ({"topic": "t"}, {"subscribe": "t", "failOnDataLoss": "True"}),
    ],
)
def test_an_option_has_the_name_that_drainer_or_that_spark_gives_it(
    drainers: dict[str, str], sparks: dict[str, str]
) -> None:
    of_drainer = {**drainers, "Bootstrap.Servers": "a:1", "isolation": "read_uncommitted"}
    of_spark = {**sparks, "kafka.bootstrap.servers": "a:1"}

    assert ReadOptions.parse(of_drainer) == ReadOptions.parse(of_spark)


def test_what_begins_with_kafka_is_a_property_of_the_client_or_its_group() -> None:
    parsed = ReadOptions.parse(
        {
            "subscribe": "t",
            "kafka.bootstrap.servers": "a:1",
            "kafka.isolation.level": "read_committed",
            "kafka.sasl.password": "hush",
            "kafka.group.id": "spark",
        }
    )

    assert parsed.settings().bootstrap_servers == "a:1"
    assert parsed.settings().isolation == "read_committed"
    assert parsed.settings().properties["sasl.password"] == "hush"
    assert (parsed.reader, parsed.group, parsed.start) == ("spark", None, EARLIEST)
    assert "hush" not in repr(parsed)


def test_offsets_are_by_topic_and_partition() -> None:
    parsed = ReadOptions.parse(
        {
            "assign": '{"t": [0, 3], "u": [1]}',
            "startingOffsets": '{"t": {"0": 100, "3": -2}, "u": {"1": 0}}',
            "endingOffsets": '{"t": {"0": 250, "3": 40}, "u": {"1": -1}}',
        }
    )

    assert parsed.topics == {"t": (0, 3), "u": (1,)}
    assert parsed.start == {"t": {0: 100, 3: -2}, "u": {1: 0}}
    assert parsed.end == {"t": {0: 250, 3: 40}, "u": {1: -1}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no topic"),
        ({"topic": " "}, "no topic"),
        ({"topic": "t", "subscribe": "t"}, "topic and subscribe set the same"),
        (
            {"topic": "t", "isolation": "read_committed", "kafka.isolation.level": "none"},
            "isolation and kafka.isolation.level set the same",
        ),
        ({"assign": '{"t": [0]}', "partitions": "0"}, "assign and partitions"),
        ({"assign": '{"t": []}'}, "a topic has no partition"),
        ({"topic": "t", "tasks": "0"}, "tasks='0'"),
        ({"topic": "t", "tasks": "four"}, "'four' is not a number"),
        ({"topic": "t", "partitions": "0,x"}, "'x' is not a number"),
        ({"topic": "t", "from": "yesterday"}, "from 'yesterday'"),
        ({"topic": "t", "startingOffsets": "latest"}, "startingOffsets='latest': "),
        ({"topic": "t", "startingOffsets": '{"t": {"0": -1}}'}, "-1 is not .* or -2"),
        ({"topic": "t", "endingOffsets": '{"t": {"0": -2}}'}, "-2 is not .* or -1"),
        ({"topic": "t", "endingOffsets": '{"t": {"0": true}}'}, "got `bool`"),
        ({"topic": "t", "from": "0", "startingTimestamp": "1"}, "from and startingTimestamp"),
        ({"topic": "t", "failOnDataLoss": "false"}, "never skips lost records silently"),
        ({"path": "orders"}, "path is unknown"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        ReadOptions.parse(options)
    assert raised.value.hint


def test_a_secret_among_the_options_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match=r"sasl\.password is unknown") as raised:
        ReadOptions.parse({"topic": "t", "sasl.password": "hush"})
    assert "hush" not in f"{raised.value}{raised.value.hint}"
    assert "client.config" in (raised.value.hint or "")


def test_options_hold_no_secret_of_the_file_that_they_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nssl.key.password=hush\n")

    parsed = ReadOptions.parse({"topic": "t", "client.config": str(file)})

    assert parsed.settings().properties["ssl.key.password"] == "hush"
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
