"""Waves and tasks of a drain on Spark, in every view."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from drainer.engine.status import Status, TaskStatus, WaveStatus
from drainer.view.lines import status_line
from drainer.view.log import LogView, logging_as_json
from drainer.view.panel import lay_out, limit
from drainer.view.summary import show_summary
from drainer.view.tasks import slowest, wave_words

from . import samples

WAVE = WaveStatus(3, 12, ahead=True, seconds=42.0)


def on_spark(count: int, hosts: int = 1, partitions: int = 1) -> Status:
    return samples.status(partitions, tasks=samples.tasks(count, hosts), wave=WAVE)


def frame(status: Status, width: int = 110, height: int = 40) -> list[str]:
    lines = lay_out(status, width, height - 1)
    return ["".join(text for text, _ in line) for line in lines]


def rows(lines: list[str], count: int) -> list[str]:
    """The rows of tasks."""
    return [line for line in lines if line.split()[:1] and line.split()[0].endswith(f"/{count}")]


def test_a_frame_says_which_wave_it_is_and_what_each_task_does() -> None:
    lines = frame(on_spark(2))

    assert "wave           3 of ~12, for 42s, the next one is read meanwhile" in lines
    behind, other = rows(lines, 2)
    assert behind.split(maxsplit=6)[:6] == ["1/2", "handling", "121", "700", "46,000", "2,400"]
    assert behind.endswith("straggler, attempt 2, silent 7.2s")
    assert other.split() == ["0/2", "handling", "120", "700", "45,000", "2,300"]


def test_what_is_slow_comes_first_and_what_has_ended_last() -> None:
    claims = [task.claim for task in slowest(samples.tasks(8))]

    assert claims == ["1/8", "0/8", "2/8", "4/8", "5/8", "6/8", "3/8", "7/8"]


def test_rows_of_nearly_the_same_rate_do_not_change_places() -> None:
    one, other = (replace(task, straggler=False, rate=2_300) for task in samples.tasks(2))

    for a, b in ((2_310.0, 2_300.0), (2_300.0, 2_310.0)):
        found = slowest([replace(one, rate=a), replace(other, rate=b)])
        assert [task.claim for task in found] == ["0/2", "1/2"]


def test_of_many_tasks_the_slowest_twelve_are_shown_and_the_others_counted() -> None:
    lines = frame(on_spark(200, hosts=7))

    assert len(rows(lines, 200)) == 12
    assert "and 188 more; of all 200: 129 handling, 21 waiting, 50 ended" in lines
    assert rows(lines, 200)[0].endswith("straggler, attempt 2, silent 7.2s, worker-2")


@pytest.mark.parametrize("count", [1, 2, 8, 200])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 3), (200, 60)])
def test_a_frame_fits_its_screen_and_leaves_room_for_partitions(
    count: int, width: int, height: int
) -> None:
    lines = frame(on_spark(count, hosts=3, partitions=5), width, height)

    assert len(lines) < height
    if height >= 24:
        assert any(line.startswith("partition") for line in lines)
        assert rows(lines, count)


def test_a_task_that_ended_is_not_called_silent() -> None:
    lines = frame(on_spark(4))

    (ended,) = [line for line in rows(lines, 4) if "ended" in line]
    assert "silent" not in ended


def test_an_address_is_told_whole() -> None:
    tasks = tuple(replace(task, host="10.0.0.7") for task in samples.tasks(1))
    status = samples.status(tasks=(*tasks, *samples.tasks(2)[:1]), wave=WAVE)

    assert any(line.endswith("10.0.0.7") for line in frame(status))


def test_a_host_steers_no_terminal() -> None:
    tasks = tuple(replace(task, host=f"\x1b[2J{task.host}") for task in samples.tasks(2, 2))

    assert "\x1b" not in "".join(frame(samples.status(tasks=tasks, wave=WAVE)))


def quick(*tasks: TaskStatus) -> Status:
    calm = tuple(replace(task, straggler=False) for task in tasks)
    return samples.status(tasks=calm, wave=WAVE)


def test_what_binds_is_told_in_spark_s_words() -> None:
    assert limit(on_spark(8)) == "the slowest tasks: the wave waits for 1/8 on worker-1"
    calm = quick(*samples.tasks(8))
    assert limit(calm) == "the handler: every worker is busy"
    assert limit(replace(calm, running=0, lanes=0)).startswith("reading")
    assert limit(replace(calm, running=100)).startswith("the executors")
    assert limit(replace(calm, running=100, lanes_ready=3)).startswith("order")


def test_many_stragglers_are_named_in_part() -> None:
    tasks = tuple(replace(task, straggler=True) for task in samples.tasks(8))
    told = limit(samples.status(tasks=tasks, wave=WAVE))

    assert told.endswith("0/8 on worker-1, 1/8 on worker-1, 2/8 on worker-1, 5 more")


def test_a_wave_whose_end_nobody_knows() -> None:
    assert wave_words(WaveStatus(1)) == "1, for 0.0s"
    assert wave_words(WaveStatus(0, seconds=12)) == "the first one is being read, for 12s"
    assert wave_words(WaveStatus(1_200, 3_000, seconds=130)) == "1,200 of ~3,000, for 2m 10s"


def test_the_line_tells_of_wave_tasks_and_stragglers() -> None:
    line = status_line(on_spark(8))

    assert "  wave 3 of ~12, for 42s, the next one is read meanwhile  " in line
    assert "  tasks 8 (5 handling, 1 waiting, 2 ended)  stragglers 1/8 on worker-1  " in line
    assert "wave" not in status_line(samples.status())


def test_the_log_has_the_slowest_tasks_and_how_many_there_are() -> None:
    stream = io.StringIO()
    with logging_as_json(json=False, quiet=False, debug=False, stderr=stream) as terminal:
        with LogView(terminal) as view:
            view.update(on_spark(200, hosts=3))
        with LogView(terminal) as view:
            view.update(samples.status())
    on, off = [line for line in map(json.loads, stream.getvalue().splitlines()) if "eta_s" in line]

    assert on["wave"] == {"number": 3, "of": 12, "ahead": True, "seconds": 42.0}
    assert on["tasks"] == 200
    assert len(on["slowest_tasks"]) == 8
    assert on["slowest_tasks"][0]["claim"] == "1/200"
    assert on["slowest_tasks"][0]["straggler"] is True
    assert on["slowest_tasks"][0]["in_flight"] == 121
    assert "wave" not in off


def test_the_summary_tells_the_engine_with_its_waves_and_tasks() -> None:
    terminal, out, err = samples.terminal(json=True)
    show_summary(terminal, samples.summary(engine="spark", waves=12, tasks=8))
    answer = json.loads(out.getvalue())

    assert "engine        Spark  (12 waves by 8 tasks)" in err.getvalue()
    assert (answer["engine"], answer["waves"], answer["tasks"]) == ("spark", 12, 8)


def test_the_summary_of_a_process_does_not_speak_of_engines() -> None:
    terminal, out, err = samples.terminal(json=True)
    show_summary(terminal, samples.summary())
    answer = json.loads(out.getvalue())

    assert "engine" not in err.getvalue()
    assert (answer["engine"], answer["waves"], answer["tasks"]) == ("process", None, None)
