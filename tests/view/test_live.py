from __future__ import annotations

import io
import math
import statistics
import sys
import threading
import time
from dataclasses import replace

import pytest

from drainer.core.latency import Latency
from drainer.core.progress import Counts
from drainer.engine.status import FailureStatus, Status
from drainer.view.live import HeldOutput, LiveView
from drainer.view.panel import lay_out, limit, share_finished
from drainer.view.terminal import Terminal

from . import samples


def frame(width: int = 80, height: int = 24, partitions: int = 1, **changes: object) -> list[str]:
    return words_of(samples.status(partitions, **changes), width, height)


def words_of(status: Status, width: int = 80, height: int = 24) -> list[str]:
    lines = lay_out(status, width, height - 1)
    return ["".join(text for text, _ in line) for line in lines]


def on_screen(height: int = 24, out: io.StringIO | None = None) -> tuple[Terminal, samples.Screen]:
    err = samples.Screen()
    terminal = Terminal(
        stdin=io.StringIO(), stdout=out or io.StringIO(), stderr=err, width=80, height=height
    )
    return terminal, err


def test_a_frame_says_what_a_person_asks_first() -> None:
    lines = frame()
    assert lines[0].startswith("Draining orders for group reindexer")
    assert lines[0].endswith("3m 20s so far")
    assert lines[1].endswith("41.0%     25m 40s left")
    text = "\n".join(lines)
    for fact in (
        "1,230,000 of ~3,000,000 finished",
        "61,500,000 finished, 3 dead",
        "89,123 sub-messages/s   average 88,000",
        "996 of 1,000 busy   14,000 of 15,000 lanes wait for one",
        "'doc-17' 12,345",
        "191 MiB of 256 MiB",
        "written 0.4s ago",
        "1171000",
    ):
        assert fact in text


def test_a_frame_tells_a_concurrency_that_is_found() -> None:
    found = [line for line in frame(auto=samples.AUTO) if line.startswith("concurrency")]
    assert found == ["concurrency    310 (auto, trying whether more helps)"]
    assert not [line for line in frame() if line.startswith("concurrency")]


def test_how_long_the_handler_takes_is_in_the_frame_once_it_is_known() -> None:
    latency = Latency.of(100, 0.02, [n / 1_000 for n in range(101)])

    assert not any(line.startswith("latency") for line in frame())
    (told,) = [line for line in frame(latency_recent=latency) if line.startswith("latency")]
    assert "p50 50ms, p95 0.1s, p99 0.1s   of the last seconds" in told


def failing(**changes: int) -> str:
    errors = (("OSError: [b1] is away", 30), ("ValueError", 2))
    failures = FailureStatus(**changes, errors=errors)  # type: ignore[arg-type]
    found = [line for line in frame(200, failures=failures) if line.startswith("failures")]
    return found[0] if found else ""


def test_what_fails_is_one_line_of_the_frame() -> None:
    assert failing() == ""
    text = failing(failures=32, retries=30, waiting=9, timeouts=4, late=1, parked_lanes=1)
    assert text.split(maxsplit=1)[1] == (
        "32, 30 retried, 9 waiting for it, 4 timed out (1 still in their threads), 1 lane parked"
        "   30 x OSError: [b1] is away"
    )
    assert "1 lane parked" in failing(parked_lanes=1)
    assert "7 retried" in failing(retries=7)  # a handler that asks to be called later


@pytest.mark.parametrize("partitions", [0, 1, 8, 9, 12, 200])
@pytest.mark.parametrize("size", [(80, 24), (120, 50), (40, 10), (20, 3), (300, 100)])
def test_a_frame_fits_its_screen(size: tuple[int, int], partitions: int) -> None:
    width, height = size
    terminal = Terminal(stderr=samples.Screen(), width=width, height=height)
    trouble = "no broker answers " * 20
    status = samples.status(partitions, trouble=trouble, stopping="x" * 200, topic="t" * 249)
    lines = lay_out(status, min(width, 110), height - 1)
    assert len(lines) < height
    with LiveView(terminal) as view:
        view.update(status)


def test_many_partitions_collapse_to_the_worst() -> None:
    status = samples.status(200)
    parts = list(status.partitions)
    parts[150] = replace(parts[150], messages_finished=0, watermark=1_000)
    parts[7] = replace(parts[7], watermark=parts[7].end)
    lines = lay_out(replace(status, partitions=tuple(parts)), 80, 23)
    text = ["".join(piece for piece, _ in line) for line in lines]
    numbers = [line.split()[0] for line in text[-9:-1]]
    assert "150" in numbers
    assert "7" not in numbers
    assert text[-1] == "and 192 more, 1 of 200 complete"


def test_a_complete_partition_has_its_tick_and_the_whole_says_finished() -> None:
    part = samples.status().partitions[0]
    lines = frame(partitions=1)
    assert "✓" not in "".join(lines)
    done = replace(part, watermark=part.end, committed=part.end)
    status = replace(samples.status(), partitions=(done,))
    text = ["".join(piece for piece, _ in line) for line in lay_out(status, 80, 23)]
    assert text[1].endswith("100%         finished")
    assert "✓" in text[-1]


def test_the_last_frame_leaves_out_what_has_nothing_to_say() -> None:
    running = samples.status(hottest=())
    assert "limited by" in "\n".join(words_of(running))
    assert "hottest lanes  -" in "\n".join(words_of(running))
    part = running.partitions[0]
    done = replace(running, partitions=(replace(part, watermark=part.end),))
    for last in (done, replace(running, stopping="interrupted")):
        text = "\n".join(words_of(last))
        assert "limited by" not in text
        assert "hottest" not in text
    assert "'doc-17' 12,345" in "\n".join(frame(stopping="interrupted"))


def test_holes_do_not_keep_a_backlog_from_being_complete() -> None:
    part = samples.status().partitions[0]
    assert share_finished([replace(part, watermark=part.end, messages_finished=3)]) == 1.0
    assert share_finished([replace(part, messages_finished=10**9)]) < 1.0
    assert share_finished([]) == 1.0


def test_what_limits_the_drain() -> None:
    status = samples.status()
    part = status.partitions[0]
    assert limit(status).startswith("the handler")
    idle = replace(status, running=3, lanes_ready=0)
    assert limit(idle).startswith("reading")
    assert limit(replace(idle, buffered_bytes=idle.buffer_bytes)).startswith("order")
    assert limit(replace(idle, lanes_ready=5_000)).startswith("this machine")
    read = replace(part, position=part.end)
    assert limit(replace(idle, partitions=(read,))).startswith("the tail")


def test_trouble_and_stopping_stand_below_the_bar() -> None:
    lines = frame(trouble="no broker [b1] \x1b[2J answers", stopping="Ctrl-C")
    assert lines[2] == "! no broker [b1] \\x1b[2J answers"
    assert lines[3] == "■ stopping: Ctrl-C"


@pytest.mark.parametrize("partitions", [0, 1, 200])
def test_unhappy_values(partitions: int) -> None:
    status = samples.status(
        partitions,
        eta_s=None,
        rate_now=0.0,
        rate_average=math.nan,
        elapsed_s=0.0,
        hottest=(),
        running=0,
        concurrency=0,
        lanes=0,
        lanes_ready=0,
        buffer_bytes=0,
        sub_messages=Counts(10**18, 10**18, 0, 0, 0),
    )
    parts = tuple(
        replace(p, committed=None, end=2**63 - 1, start=2**63 - 1) for p in status.partitions
    )
    for some in (status, replace(status, partitions=parts)):
        terminal, err = on_screen()
        with LiveView(terminal) as view:
            view.update(some)
        assert "1,000,000,000,000,000,000 finished" in err.getvalue()


def test_the_last_frame_stays_on_the_screen() -> None:
    terminal, err = on_screen()
    with LiveView(terminal) as view:
        view.update(samples.status(elapsed_s=1.0))
        view.update(samples.status(elapsed_s=77.0))
    last = err.getvalue().rpartition("\x1b[2K")[2]
    assert "1m 17s so far" in last
    assert last.endswith("\x1b[?25h")  # and the cursor is back


def test_the_last_frame_stays_when_the_drain_raises() -> None:
    terminal, err = on_screen()

    def drain() -> None:
        with LiveView(terminal) as view:
            view.update(samples.status(elapsed_s=77.0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        drain()
    assert "1m 17s so far" in err.getvalue().rpartition("\x1b[2K")[2]


def test_what_a_handler_prints_appears_above_the_frame() -> None:
    terminal, err = on_screen(out=samples.Screen())
    stdout, stderr = sys.stdout, sys.stderr
    with LiveView(terminal) as view:
        view.update(samples.status())
        print("handled [doc]")
        print("half", end="", file=sys.stderr)
        assert "handled" not in err.getvalue()
        view.update(samples.status())
        assert "handled [doc]\n" in err.getvalue()
        assert "half" not in err.getvalue()
    assert "half\n" in err.getvalue()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)


def test_data_on_a_piped_stdout_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, _ = on_screen()
    with LiveView(terminal) as view:
        print("data")
        view.update(samples.status())
    assert capsys.readouterr().out == "data\n"


def test_a_printing_handler_holds_bounded_memory_and_loses_nothing() -> None:
    let_out: list[str] = []
    held = HeldOutput(io.StringIO(), lambda: let_out.append(held.take()), limit=100)

    def write() -> None:
        for number in range(1_000):
            held.write(f"{number}\n")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = ("".join(let_out) + held.take(rest=True)).split()
    assert max(map(len, let_out)) < 1_000
    assert sorted(lines) == sorted([str(number) for number in range(1_000)] * 4)


@pytest.mark.parametrize("partitions", [1, 12, 200])
def test_a_frame_costs_less_than_five_milliseconds(partitions: int) -> None:
    terminal, _ = on_screen()
    status = samples.status(partitions)
    times = []
    with LiveView(terminal) as view:
        for _ in range(50):
            begun = time.thread_time()
            view.update(status)
            times.append(time.thread_time() - begun)
    assert statistics.median(times) < 0.005
