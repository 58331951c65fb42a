from __future__ import annotations

import io
import math
import re
import statistics
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from builders import a_cap, a_status, changed, counts
from drainer.model.account import Event, EventKind
from drainer.model.deadline import DeadlineStatus
from drainer.model.latency import Latency
from drainer.model.priority import ClassStatus
from drainer.model.status import (
    FailureStatus,
    HeldBack,
    Load,
    OutageStatus,
    PartitionStatus,
    Paused,
    Status,
    share_finished,
)
from drainer.view.limit import advice, limit
from drainer.view.live import (
    PRINTED_MOST,
    LiveView,
    RunningLine,
    frame,
    progress_view,
    status_line,
)
from drainer.view.status import causes, warnings
from drainer.view.terminal import Terminal

from . import samples

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def words_of(status: Status, width: int = 80, height: int = 24) -> list[str]:
    lines = frame(status, width, height)
    return ["".join(text for text, _ in line) for line in lines]


def on_screen(out: io.StringIO | None = None) -> tuple[Terminal, samples.Screen]:
    err = samples.Screen()
    stdin, stdout = io.StringIO(), out or io.StringIO()
    return Terminal(stdin=stdin, stdout=stdout, stderr=err, width=80, height=24), err


UNHAPPY = {"eta_s": None, "rate_average": math.nan, "in_flight": 0, "concurrency": 0, "hottest": ()}


@pytest.mark.parametrize("partitions", [0, 9, 200])
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 3), (300, 100)])
def test_a_frame_fits_its_screen(size: tuple[int, int], partitions: int) -> None:
    width, height = size
    err = samples.Screen()
    long = {"trouble": "no broker answers " * 20, "stopping": "x" * 200, "topic": "t" * 249}
    status = a_status(partitions, **long, **UNHAPPY)
    words = words_of(status, min(width, 110), height)
    assert len(words) < height
    assert re.search(r"  \S+( \S+)? so far$", words[0])
    with LiveView(Terminal(stderr=err, width=width, height=height)) as view:
        view.update(status)
    assert max(map(len, ANSI.sub("", err.getvalue()).splitlines())) <= width


def test_a_line_that_is_cut_ends_in_an_ellipsis() -> None:
    terminal, err = on_screen()
    with LiveView(terminal) as view:
        view.update(a_status(plan="a/very/long/path/" * 20))
    lines = ANSI.sub("", err.getvalue()).splitlines()
    assert any(line[79:] == "…" for line in lines)


URL = "http://search.production.example.com:9200/a/rather/long/path/to/the/index/of/orders/of/2026"


@pytest.mark.parametrize("width", [80, 60])
def test_an_outage_is_shown_whole_with_its_times(width: int) -> None:
    since = datetime(2026, 11, 20, 17, 2, 11).astimezone()
    outage = OutageStatus(since, 70.0, since + timedelta(hours=1), 8.0)
    trouble = f"ConnectionError: {URL} refuses connections"
    status = a_status(trouble=trouble, failures=FailureStatus(in_outage=True, outage=outage))
    lines = words_of(status, width)
    first = next(n for n, line in enumerate(lines) if line.startswith("! "))
    until = next(n for n, line in enumerate(lines) if line.startswith("  limited by"))
    assert max(map(len, lines[first:until])) <= width
    shown = " ".join(line.strip() for line in lines[first:until])
    words = f"! outage since 17:02:11 (1m 10s): {trouble}; next try in 8.0s, halts at 18:02"
    assert shown.replace(" ", "") == words.replace(" ", "")
    assert "! outage since 17:02:11 (1m 10s): ConnectionError:" in lines[first]
    assert "if only these messages are bad" in advice(status)
    later = replace(outage, halts=since + timedelta(days=2), next_try_s=None)
    status = changed(status, failures=FailureStatus(in_outage=True, outage=later))
    assert [text for _, text, _ in warnings(status)] == [
        f"outage since 17:02:11 (1m 10s): {trouble}; halts at Sun 17:02"
    ]
    soon = replace(outage, halts=since + timedelta(seconds=90))
    status = changed(status, failures=FailureStatus(in_outage=True, outage=soon))
    assert [text.rpartition("; ")[2] for _, text, _ in warnings(status)] == [
        "next try in 8.0s, halts at 17:03:41"
    ]


def test_a_silent_broker_is_named_with_the_time_of_its_silence() -> None:
    status = a_status(trouble="no answer from broker b1:9092", silent_s=15.0)
    assert "! no answer from broker b1:9092 since 15s" in words_of(status)


def test_a_downstream_that_has_become_slow_is_no_reason_for_more_calls() -> None:
    slow = Latency.of(100, 0.22, [0.22] * 101)
    status = a_status(p50_at_start_s=0.022, latency_recent=slow)
    assert limit(status) == "the downstream: p50 went from 22ms to 220ms since the start"
    assert "concurrency=" not in advice(status)
    for before_s in (None, 0.12):
        assert (
            limit(changed(status, p50_at_start_s=before_s)) == "the handler: every worker is busy"
        )
    quick = Latency.of(100, 0.004, [0.004] * 101)
    assert limit(changed(status, p50_at_start_s=0.001, latency_recent=quick)).startswith("the hand")


def test_a_downstream_that_hangs_is_no_reason_for_more_calls() -> None:
    usual = Latency.of(100, 0.022, [0.022] * 101)
    status = a_status(rate_now=0.0, latency=usual, latency_recent=None)
    hangs = "the downstream: no call has succeeded in the last 5s, and p50 was 22ms"
    assert limit(status) == hangs
    assert "concurrency=" not in advice(status)
    long = Latency.of(100, 30.0, [30.0] * 101)
    for other in (changed(status, latency=long), changed(status, rate_now=1.0)):
        assert limit(other) == "the handler: every worker is busy"


def test_what_holds_the_watermark_back_is_a_line_of_the_view() -> None:
    held = HeldBack(0, 470, "'d-root'", 423, 20.0)
    words = "held back by 0:470, sub-key 'd-root' (423 before it), for 20s"
    assert f"  watermark     {words}" in words_of(a_status(held_back=(held,)))
    other = replace(held, partition=1, key=None)
    text = "\n".join(words_of(a_status(held_back=(other, held, held)), 110))
    assert "  watermark     held back by 1:470, for 20s  (and 2 more partitions)" in text
    in_turn = replace(held, before=0, is_ready=True)
    words = "held back by 0:470, sub-key 'd-root' (waits for a worker), for 20s"
    assert f"  watermark     {words}" in words_of(a_status(held_back=(in_turn,)), 110)


def test_many_partitions_collapse_to_the_worst() -> None:
    status = a_status(200)
    parts = list(status.progress.partitions)
    parts[150] = replace(parts[150], messages_finished=0, watermark=1_000)
    parts[7] = replace(parts[7], watermark=parts[7].end)
    text = words_of(changed(status, partitions=tuple(parts)))
    numbers = [line.split()[0] for line in text[-5:-1]]
    assert "150" in numbers
    assert "7" not in numbers
    assert re.fullmatch(r"and 19\d more, 1 of 200 done", text[-1])


def test_the_last_frame_leaves_out_what_is_of_no_use() -> None:
    running = a_status(hottest=())
    assert "limited by" in "\n".join(words_of(running))
    part = running.progress.partitions[0]
    done = changed(running, partitions=(replace(part, watermark=part.end),))
    for last in (done, changed(running, stopping="interrupted")):
        text = "\n".join(words_of(last))
        assert "limited by" not in text
        assert "hottest" not in text
    assert words_of(done)[1].endswith("100%             done")
    assert "  messages      1,230,000 done" in words_of(done), "other offsets had no message"
    assert "100%" in words_of(done)[-1]


def test_a_class_is_not_called_drained_while_some_of_it_waits() -> None:
    at = datetime.now().astimezone().replace(hour=20, minute=6, second=24)
    found = ClassStatus("payload.k == 1", counts(done=1_094), 46_906, ended=at.isoformat())
    text = " ".join(" ".join(words_of(a_status(classes=(found,)))).split())
    assert "payload.k == 1 (1,094 done by 20:06:24; 46,906 wait for the rest and end by " in text


def test_while_a_class_is_drained_progress_is_what_it_has_done_of_all() -> None:
    found = ClassStatus("payload.k == 1", counts(done=10), left=30)
    [part] = a_status().progress.partitions
    part = replace(part, watermark=part.start, sub_messages_finished=10, sub_messages_left=90)
    status = changed(a_status(classes=(found,)), partitions=(part,))
    assert "  10.0%  " in words_of(status)[1]
    assert words_of(status)[-1].split()[4] == "10.0%"
    assert "  10.0%  " in status_line(status)
    assert " (10 of ~40 done)  " in status_line(status)
    searched = "messages looking for priority messages: 1,230,000 of ~3,000,000"
    assert searched in status_line(status)


def test_the_times_of_a_class_and_of_all_have_lines_of_their_own_beside_a_bar() -> None:
    at = datetime(2026, 11, 20, 20, 0, tzinfo=UTC)
    found = ClassStatus("payload.k == 1", counts(done=10), left=30, eta_s=310.0)
    deadline = DeadlineStatus(at, 50_000.0, 48_460.0)
    lines = words_of(a_status(classes=(found,), deadline=deadline, eta_s=1_540.0))
    assert max(map(len, lines)) <= 80
    assert re.match("━+", lines[1])
    assert "  ✓ 25m 40s left, done at " in lines[1]
    assert lines[1].endswith(f" before {local(at)}")
    assert lines[2].endswith("  5m 10s left for the class")
    unknown = replace(found, eta_s=None)
    assert "for the class" not in "".join(words_of(a_status(classes=(unknown,))))


def test_a_class_of_which_some_waits_for_the_rest_ends_with_it() -> None:
    found = ClassStatus("payload.k == 1", counts(done=10), deferred=34, left=30, eta_s=310.0)
    status = a_status(classes=(found,), eta_s=1_540.0)
    lines = words_of(status, 110)
    assert lines[2].endswith("  5m 10s left for the class, except 34 that wait")
    (first,) = [line for line in lines if "payload.k" in line]
    (all_,) = [line for line in lines if line.startswith("  all ")]
    assert first.endswith(f"; 34 wait for the rest and end {all_.split(maxsplit=1)[1]})")
    assert "except" not in words_of(changed(status, classes=(replace(found, deferred=0),)))[2]
    assert "; 34 wait for the rest)" in "".join(words_of(changed(status, only_classes=True), 110))


def test_with_only_times_and_shares_are_said_to_be_of_the_selected() -> None:
    at = datetime(2026, 11, 20, 20, 0, tzinfo=UTC)
    deadline = DeadlineStatus(at, 50_000.0, 48_460.0)
    found = ClassStatus("payload.k == 1", counts(done=10), left=30, eta_s=1_540.0)
    status = a_status(classes=(found,), deadline=deadline, eta_s=1_540.0)
    for only, end, row, heading in (
        (True, "selected by", "  selected ", "end  selected done"),
        (False, "done at", "  all ", "end   done"),
    ):
        shown = changed(status, only_classes=only)
        lines = words_of(shown)
        assert max(map(len, lines)) <= 80
        assert f"✓ 25m 40s left, {end} " in lines[1]
        assert [line for line in lines if line.startswith(row)]
        assert heading in lines[-2]
        assert ("% of the selected  eta" in status_line(shown)) is only


def test_holes_do_not_keep_a_backlog_from_being_complete() -> None:
    part = a_status().progress.partitions[0]
    assert share_finished([replace(part, watermark=part.end, messages_finished=3)]) == 1.0
    assert share_finished([replace(part, messages_finished=10**9)]) < 1.0
    assert share_finished([]) == 1.0


def test_what_limits_the_drain() -> None:
    status = a_status()
    cap = a_cap()
    read = replace(status.progress.partitions[0], position=status.progress.partitions[0].end)
    idle = changed(status, in_flight=3, lanes_ready=0)
    tail = changed(idle, in_flight=0, hottest=(), partitions=(read,))
    for found, words in (
        (status, "the handler"),
        (
            changed(status, write_cap=cap),
            "the brokers' limits: at most 1,000 messages/s, 98 KiB/s written",
        ),
        (changed(idle, trouble="away", is_kept_waiting=True), "the trouble: drainer waits"),
        (changed(idle, lanes_ready=5_000, trouble="away", is_kept_waiting=True), "the trouble"),
        (changed(status, trouble="a commit is late"), "the handler"),
        (changed(idle, trouble="a commit is late"), "reading"),
        (changed(idle, failures=FailureStatus(in_outage=True)), "failures: drainer tries one"),
        (changed(status, processor=Load(0.97)), "the processor: drainer uses 97% of a core"),
        (
            changed(status, processor=Load(0.6, 0.3)),
            "the processor: drainer uses 60% of a core, and waits for one 30% of the time",
        ),
        (
            changed(status, blocked_by="h.py:7 in handle", is_blocked=True),
            "the handler: it blocks the event loop at h.py:7 in handle",
        ),
        (changed(status, blocked_by="h.py:7 in handle"), "the handler: every worker"),
        (changed(status, in_flight=8_000, busy=50), "this machine"),
        (changed(status, failures=FailureStatus(rate=status.progress.rate_now)), "--rate"),
        (changed(idle, failures=FailureStatus(waiting=10**6)), "retries"),
        (idle, "reading"),
        (
            changed(tail, in_flight=1, behind_barriers=2_800),
            "barriers: 2,800 sub-messages wait for one, which waits for all before it",
        ),
        (
            changed(idle, read_cap=cap),
            "the brokers' limits: at most 1,000 messages/s, 98 KiB/s read",
        ),
        (changed(idle, buffered_bytes=idle.limits.buffer_bytes), "order"),
        (changed(idle, lanes_ready=5_000), "this machine"),
        (changed(idle, lanes_ready=5_000, behind_barriers=2_800), "barriers: 2,800"),
        (changed(idle, partitions=(read,)), "the tail"),
        (changed(tail, failures=FailureStatus(waiting=1)), "retries"),
        (changed(idle, in_flight=1, partitions=(read,)), "the lane of 'doc-17', where 12,345 wait"),
    ):
        assert limit(found).startswith(words)


def test_more_concurrency_is_advised_only_where_the_handler_is_the_limit() -> None:
    busy = a_status()
    assert advice(busy).startswith("`drainer set orders.reindexer.plan concurrency=…`")
    assert advice(changed(busy, auto=samples.AUTO)) == "", "it is raised automatically"
    at_most = replace(samples.AUTO, limit=2_000)
    assert "concurrency=auto:…" in advice(changed(busy, auto=at_most))
    full = advice(changed(busy, processor=Load(0.97)))
    assert "concurrency=" not in full
    assert "--engine spark" in full
    assert "--engine" not in advice(
        changed(busy, processor=Load(0.97), engine_status=samples.on_spark(8))
    )


def test_an_advised_command_names_the_plan_as_a_shell_takes_it() -> None:
    status = a_status(plan="my {plan}.json")
    paused = Paused(Event("2026-11-20T17:02:11+00:00", EventKind.PAUSED, "ana@db1"))
    outage = OutageStatus(datetime(2026, 11, 20, tzinfo=UTC), 60.0, datetime.max, None)
    for found, words in (
        (changed(status, paused=paused), "`drainer unpause 'my {plan}.json'`"),
        (status, "`drainer set 'my {plan}.json' concurrency=…`"),
        (
            changed(status, failures=FailureStatus(rate=1.0)),
            "`drainer set 'my {plan}.json' rate=…`",
        ),
        (
            changed(status, failures=FailureStatus(in_outage=True, outage=outage)),
            "`drainer set 'my {plan}.json' breaker=off`",
        ),
    ):
        assert words in advice(found)


def test_long_names_are_shown_whole() -> None:
    topic, group = "customer-events-eu-west-1-" * 2, "indexer-of-customers-" * 3
    plan = f"{topic}.{group}.plan.json"
    lines = words_of(a_status(topic=topic, group=group, plan=plan))
    assert max(map(len, lines)) <= 80
    shown = "".join("".join(lines).split())
    assert f"Draining{topic}" in shown.replace("3m20ssofar", "")
    assert f"group{group}" in shown
    assert f"plan{plan}" in shown
    assert f"`drainerset\\{plan}" in shown


def test_other_processes_are_named_when_they_take_the_cores() -> None:
    starved = changed(a_status(), processor=Load(0.01, 0.92))
    assert limit(starved) == (
        "the processor: drainer uses 1% of a core, and waits for one 92% of the time, which other"
        " processes or a limit on this one take"
    )
    assert advice(starved).startswith("end what else runs here, or resume on another machine")
    assert advice(changed(starved, processor=Load(0.6, 0.35))).startswith("a cheaper `split`")


def test_an_outage_is_blamed_on_the_messages_only_after_a_minute() -> None:
    since = datetime(2026, 11, 20, 17, 2, 11).astimezone()
    for for_s, advised in ((5.0, False), (59.0, False), (60.0, True)):
        outage = OutageStatus(since, for_s, since + timedelta(hours=1), 8.0)
        status = a_status(failures=FailureStatus(in_outage=True, outage=outage))
        assert ("breaker=off" in advice(status)) is advised


def test_partitions_without_work_are_folded_first() -> None:
    busy = a_status(2).progress.partitions
    idle = tuple(
        PartitionStatus(
            partition=n,
            start=0,
            end=0,
            position=0,
            watermark=0,
            committed=None,
            messages_finished=0,
        )
        for n in range(2, 5)
    )
    lines = words_of(a_status((*busy, *idle)), height=40)
    heading = next(n for n, line in enumerate(lines) if line.startswith("partition "))
    assert [line.split()[0] for line in lines[heading + 1 :]] == ["0", "1", "and"]
    assert lines[-1] == "and 3 more, 3 of 5 done"
    lines = words_of(a_status(idle), height=40)
    assert [line.split()[0] for line in lines[-3:]] == ["2", "3", "4"]


def test_failures_are_shown_whole_on_a_small_screen() -> None:
    failures = FailureStatus(failures=32, failed_sub_messages=21, retries=30, waiting=60, late=3)
    lines = words_of(a_status(failures=failures))
    assert max(map(len, lines)) <= 80
    assert "32 failed attempts on 21 sub-messages, 30 retries, 60 to retry, 3 overdue" in " ".join(
        " ".join(lines).split()
    )


def test_no_more_workers_are_busy_than_there_may_be() -> None:
    """After the limit was lowered, calls end that were begun before."""
    assert "workers 53 of 53 busy" in status_line(a_status(in_flight=74, concurrency=53))
    several = a_status(in_flight=424, busy=53, concurrency=53)
    assert "workers 53 of 53 busy" in status_line(several)
    assert "hot lanes" not in status_line(a_status(hottest=()))


def test_a_change_of_another_day_names_it() -> None:
    change = Event("2026-11-19T17:02:11", EventKind.CHANGED, "ana@db1")
    paused = Paused(replace(change, what=EventKind.PAUSED), "2026-11-20T18:00:00")
    status = a_status(changes=(change,), paused=paused)
    now = datetime(2026, 11, 20, 9).astimezone()
    shown = "\n".join("".join(text for text, _ in line) for line in frame(status, 80, 24, now=now))
    assert "change        19 Nov 17:02:11 changed by ana@db1" in shown
    assert "Paused by ana@db1 at 19 Nov 17:02:11 until 18:00:00" in shown
    now = datetime(2026, 11, 19, 23).astimezone()
    shown = "\n".join("".join(text for text, _ in line) for line in frame(status, 80, 24, now=now))
    assert "change        17:02:11 changed" in shown
    assert "at 17:02:11 until Fri 18:00:00" in shown


def test_the_last_frame_stays_on_the_screen_also_when_the_drain_raises() -> None:
    terminal, err = on_screen()

    def drain() -> None:
        with LiveView(terminal) as view:
            view.update(a_status(elapsed_s=1.0))
            view.update(a_status(elapsed_s=77.0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        drain()
    last = err.getvalue().rpartition("\x1b[2K")[2]
    assert "1m 17s so far" in last
    assert last.endswith("\x1b[?25h")  # and the cursor is back


def test_a_running_line_is_redrawn_on_a_screen_and_printed_seldom_elsewhere() -> None:
    screen, err = on_screen()
    piped, _, printed = samples.terminal()
    for terminal, every_s in ((screen, None), (piped, 0.0), (piped, None), (piped, 60.0)):
        with RunningLine(terminal, every_s) as line:
            line.draw("reading\x1b[2J")
    assert printed.getvalue() == "reading\\x1b[2J\n"
    assert "reading\\x1b[2J" in err.getvalue()


def test_a_running_line_breaks_what_is_too_long_for_the_screen() -> None:
    terminal, err = on_screen()
    text = f"{'customer-events-' * 6}blue for indexer   41.2%   about 3m 20s left"
    with RunningLine(terminal) as line:
        line.draw(text)
    lines = ANSI.sub("", err.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(text.split()) in "".join("".join(lines).split())


def test_what_a_handler_prints_appears_above_the_frame() -> None:
    terminal, err = on_screen(out=samples.Screen())
    stdout, stderr = sys.stdout, sys.stderr
    with LiveView(terminal) as view:
        view.update(a_status())
        print("handled [doc]")
        print("half", end="", file=sys.stderr)
        assert "handled" not in err.getvalue()
        view.update(a_status())
        assert "handled [doc]\n" in err.getvalue()
        assert "half" not in err.getvalue()
    assert "half\n" in err.getvalue()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)


def test_data_on_a_piped_stdout_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, _ = on_screen()
    with LiveView(terminal) as view:
        print("data")
        view.update(a_status())
    assert capsys.readouterr().out == "data\n"


def test_a_printing_handler_does_not_wait_for_a_stopped_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, err = on_screen(out=samples.Screen())
    text = "x" * (PRINTED_MOST // 10)
    with LiveView(terminal):
        monkeypatch.setattr(Terminal, "is_ready", False)
        for number in range(15):
            print(f"{number} {text}")
        assert text not in err.getvalue()
    lines = [line.split()[0] for line in err.getvalue().splitlines() if line.endswith(text)]
    assert lines == [str(number) for number in range(6, 15)]


def test_a_printing_handler_holds_bounded_memory_and_loses_nothing() -> None:
    terminal, err = on_screen()
    text = "x" * (PRINTED_MOST // 1_000)

    def write() -> None:
        for number in range(500):
            sys.stderr.write(f"{number} {text}\n")

    with LiveView(terminal):
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert err.getvalue().count(text) > 900
    seen = ANSI.sub("", err.getvalue()).splitlines()
    lines = [line.split()[0] for line in seen if line.endswith(text)]
    assert sorted(lines) == sorted([str(number) for number in range(500)] * 4)


def test_a_frame_costs_less_than_five_milliseconds() -> None:
    terminal, _ = on_screen()
    status = a_status(200)
    times = []
    with LiveView(terminal) as view:
        for _ in range(20):
            begun = time.thread_time()
            view.update(status)
            times.append(time.thread_time() - begun)
    assert statistics.median(times) < 0.005


def local(at: datetime, after_s: float = 0.0) -> str:
    return f"{(at + timedelta(seconds=after_s)).astimezone():%H:%M}"


def test_the_margin_is_shown_and_a_warning_comes_once_it_is_sure() -> None:
    at = datetime(2026, 11, 20, 20, 0, tzinfo=UTC)
    fine, late = DeadlineStatus(at, 7200.0, 1800.0), DeadlineStatus(at, 7200.0, -1800.0)
    for found, eta_s, words in ((fine, 5_400, "before"), (late, 9_000, "after")):
        shown = words_of(a_status(deadline=found, eta_s=eta_s))[1]
        assert shown.endswith(
            f" left, done at {local(at, eta_s - 7_200)}, 30m 00s {words} {local(at)}"
        )
    shown = words_of(a_status(deadline=late, eta_s=5_400), 100)[1]
    assert shown.endswith(
        f"✗ 1h 30m left, done at {local(at, -1_800)}, but late at the last minute's pace"
    )
    assert list(warnings(a_status(deadline=late, eta_s=9_000))) == []
    [(event, text, _)] = warnings(a_status(deadline=replace(late, missed=True), eta_s=9_000))
    assert event == "deadline"
    assert f"30m 00s after {local(at)}; limited by " in text


def test_a_notebook_has_one_output_that_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Notebook:
        kernel = object()

        def __init__(self) -> None:
            self.outputs: list[str] = []
            self.display = self  # the module of this name, and the function in it

        def get_ipython(self) -> Notebook:
            return self

        def __call__(self, shown: dict[str, str], *, raw: bool, display_id: bool) -> Notebook:
            assert raw
            assert display_id
            self.outputs.append(shown["text/plain"])
            return self

        def update(self, shown: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.outputs[-1] = shown["text/plain"]

    notebook = Notebook()
    notebook.display.display = notebook
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    terminal, err = on_screen()

    with progress_view(terminal) as view:
        view.update(a_status())
        view.update(a_status(topic="or\x1bders"))

    (output,) = notebook.outputs
    assert output.startswith("Draining or\\x1bders for group")
    assert "━" in output
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("engine", "lately"),
    [(None, "the last 50ms"), (samples.on_spark(3), "what tasks have not recorded")],
)
def test_a_kill_also_repeats_what_no_journal_has_yet(engine: Any, lately: str) -> None:
    *_, safe = causes(a_status(in_flight=30, engine_status=engine))
    assert safe.value.endswith(f"a kill now repeats 30 calls in flight and {lately}")
