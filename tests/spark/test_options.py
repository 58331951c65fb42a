"""Options say what ``drainer run`` says, a slip in one is told, and no secret with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.errors import UsageError
from drainer.kafka.backlog import COMMITTED, EARLIEST, END, Bound
from drainer.message import Origin
from drainer.spark.options import OffsetRange, ReadOptions


def test_without_a_group_the_start_is_the_first_record_else_its_committed_offset() -> None:
    assert ReadOptions.parse({"topic": "t"}).from_ == EARLIEST
    assert ReadOptions.parse({"topic": "t", "group": "g"}).from_ == COMMITTED
    assert ReadOptions.parse({"topic": "t", "group": "g", "from": "7"}).from_ == Bound(offset=7)


def test_every_option_is_understood_whatever_its_case() -> None:
    said = ReadOptions.parse(
        {
            "TOPIC": "t",
            "Bootstrap.Servers": "a:1",
            "partitions": "2, 0",
            "from": "@2026-11-20T18:00Z",
            "until": "end",
            "isolation": "read_uncommitted",
            "tasks": "4",
        }
    )

    assert said.partitions == (0, 2)
    assert said.from_ == Bound(time_ms=1795197600000)
    assert said.until == END
    assert said.tasks == 4
    assert said.settings().isolation == "read_uncommitted"
    assert said.settings().bootstrap_servers == "a:1"


def test_ranges_are_offsets_by_partition() -> None:
    said = ReadOptions.parse({"topic": "t", "ranges": '{"3": [0, 40], "0": [100, 250]}'})

    assert said.ranges == {0: (100, 250), 3: (0, 40)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no topic"),
        ({"topic": " "}, "no topic"),
        ({"topic": "t", "tasks": "0"}, "tasks='0'"),
        ({"topic": "t", "tasks": "four"}, "tasks='four'"),
        ({"topic": "t", "partitions": "0,x"}, "'x' is no partition"),
        ({"topic": "t", "from": "yesterday"}, "from 'yesterday'"),
        ({"topic": "t", "isolation": "none"}, "isolation='none'"),
        ({"topic": "t", "ranges": "{"}, "ranges='{': "),
        ({"topic": "t", "ranges": "{}"}, "no partition"),
        ({"topic": "t", "ranges": '{"x": [0, 1]}'}, "Expected `int`"),
        ({"topic": "t", "ranges": '{"0": [2, 1]}'}, r"\[2, 1\) of partition 0"),
        ({"topic": "t", "ranges": '{"0": [0, true]}'}, r"Expected `int`, got `bool`"),
        ({"topic": "t", "ranges": '{"0": [0, 1]}', "from": "0"}, "ranges .* and from"),
        ({"path": "orders"}, "path is unknown"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as raised:
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

    said = ReadOptions.parse({"topic": "t", "client.config": str(file)})

    assert said.settings().properties["ssl.key.password"] == "hush"
    assert "hush" not in repr(said)


@pytest.mark.parametrize(
    ("start", "end", "parts", "cuts"),
    [
        (10, 20, 1, [(10, 20)]),
        (10, 20, 3, [(10, 13), (13, 16), (16, 20)]),
        (10, 12, 5, [(10, 11), (11, 12)]),
        (10, 10, 5, []),
    ],
)
def test_a_range_is_cut_evenly_and_nothing_is_left_out(
    start: int, end: int, parts: int, cuts: list[tuple[int, int]]
) -> None:
    range_ = OffsetRange(Origin("t", "id", 0), start, end)

    assert [(cut.start, cut.end) for cut in range_.cut(parts)] == cuts
