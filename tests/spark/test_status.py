"""Waves and tasks of a drain on Spark, in every view."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from drainer.engine.status import Status
from drainer.spark.status import SparkStatus, TaskStatus
from drainer.view.lines import LineView, status_line
from drainer.view.live import lay_out
from drainer.view.log import logging_as_json
from drainer.view.progress import limit
from view import samples


def on_spark(count: int, hosts: int = 1, partitions: int = 1) -> Status:
    return samples.status(partitions, engine=samples.on_spark(count, hosts))


def of(*tasks: TaskStatus) -> Status:
    return samples.status(engine=replace(samples.on_spark(1), tasks=tasks))


def frame(status: Status, width: int = 110, height: int = 40) -> list[str]:
    lines = lay_out(status, width, height - 1)
    return ["".join(text for text, _ in line) for line in lines]


def rows(lines: list[str], count: int) -> list[str]:
    """The rows of tasks."""
    return [line for line in lines if line.split()[:1] and line.split()[0].endswith(f"/{count}")]


def test_a_frame_says_which_wave_it_is_and_what_each_task_does() -> None:
    lines = frame(on_spark(2))

    assert "  wave          3 of ~12, for 42s, the next one is read meanwhile" in lines
    behind, other = rows(lines, 2)
    assert behind.split(maxsplit=6)[:6] == ["1/2", "handling", "121", "700", "46,000", "2,400"]
    assert behind.endswith("straggler, attempt 2, silent 7.2s")
    assert other.split() == ["0/2", "handling", "120", "700", "45,000", "2,300"]


def test_what_is_slow_comes_first_and_what_has_ended_last_and_nearly_alike_rows_stay() -> None:
    claims = [task.task for task in samples.on_spark(8).slowest]
    assert claims == ["1/8", "0/8", "2/8", "4/8", "5/8", "6/8", "3/8", "7/8"]

    one, other = (replace(task, straggler=False, rate=2_300) for task in samples.tasks(2))
    for a, b in ((2_310.0, 2_300.0), (2_300.0, 2_310.0)):
        found = SparkStatus(1, tasks=(replace(one, rate=a), replace(other, rate=b))).slowest
        assert [task.task for task in found] == ["0/2", "1/2"]


def test_of_many_tasks_the_slowest_twelve_are_shown_and_the_others_counted() -> None:
    lines = frame(on_spark(200, hosts=7))

    assert len(rows(lines, 200)) == 12
    assert "and 188 more; of all 200: 129 handling, 21 waiting, 50 ended" in lines
    assert rows(lines, 200)[0].endswith("straggler, attempt 2, silent 7.2s, worker-2")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 3), (200, 60)])
def test_a_frame_fits_its_screen_and_leaves_room_for_partitions(width: int, height: int) -> None:
    lines = frame(on_spark(200, hosts=3, partitions=5), width, height)

    assert len(lines) < height
    if height >= 24:
        assert any(line.startswith("partition") for line in lines)
        assert rows(lines, 200)


def test_a_task_that_ended_is_not_called_silent_and_an_address_stays_whole() -> None:
    lines = frame(of(replace(samples.tasks(1)[0], host="10.0.0.7"), *samples.tasks(4)))

    (ended,) = [line for line in rows(lines, 4) if "ended" in line]
    assert "silent" not in ended
    assert any(line.endswith("10.0.0.7") for line in lines)


def test_what_binds_is_said_in_spark_s_words() -> None:
    assert limit(on_spark(8)) == "the slowest tasks: the wave waits for 1/8 on worker-1"
    calm = of(*(replace(task, straggler=False) for task in samples.tasks(8)))
    assert limit(calm) == "the handler: every worker is busy"
    assert limit(replace(calm, running=0, lanes=0)).startswith("reading")
    assert limit(replace(calm, running=100)).startswith("the executors")
    assert limit(replace(calm, running=100, lanes_ready=3)).startswith("order")
    slow = of(*(replace(task, straggler=True) for task in samples.tasks(8)))
    assert limit(slow).endswith("0/8 on worker-1, 1/8 on worker-1, 2/8 on worker-1, 5 more")


def test_a_wave_whose_end_is_unknown_and_one_that_is_only_read() -> None:
    assert SparkStatus(1).facts == [("wave", "1, for 0.0s")]
    assert SparkStatus(0, wave_s=12).facts[0][1] == "the first one is being read, for 12s"
    assert SparkStatus(1_200, 3_000, wave_s=130).facts[0][1] == "1,200 of ~3,000, for 2m 10s"


def test_the_line_and_the_log_have_wave_tasks_and_stragglers() -> None:
    line = status_line(on_spark(8))
    assert "  wave 3 of ~12, for 42s, the next one is read meanwhile  " in line
    assert "  tasks 8 (5 handling, 1 waiting, 2 ended)  stragglers 1/8 on worker-1  " in line

    stream = io.StringIO()
    log = logging_as_json(json=False, quiet=False, debug=False, stderr=stream)
    with log as terminal, LineView(terminal) as view:
        view.update(on_spark(200, hosts=3))
    told = json.loads(stream.getvalue().splitlines()[-1])["engine"]
    assert (told["wave"], told["waves"], told["wave_s"], told["tasks"]) == (3, 12, 42.0, 200)
    assert len(told["slowest_tasks"]) == 8
    assert (told["slowest_tasks"][0]["task"], told["slowest_tasks"][0]["running"]) == (
        "1/200",
        121,
    )
