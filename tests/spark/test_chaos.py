"""A bad night on Spark: workers die or stand still, jobs are cancelled, the state goes away."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.control import client
from drainer.engine.control import Pause, Unpause
from drainer.errors import EXIT_INTERRUPTED, Interrupted, Refused, StateLost
from drainer.model.status import Status
from drainer.spark.assign.status import SparkStatus
from drainer.spark.session.session import Session
from drainer.spark.state.lease import LOCAL
from drainer.store.place import parse_place
from kafka.topic import eventually
from spark.story import HANDLER, Op, Story
from spark.test_drain import messages
from spark.trouble import ensure_few_repeats, interrupt, kill, states, stop_for, trouble

CONCURRENCY = 20


def fill(story: Story, *last: Op) -> None:
    """A backlog of about 1,100 sub-messages, and some more at the end."""
    story.fill([*messages(150, 21), *([op] for op in last)], messages(100, 22))


@pytest.mark.long
def test_a_worker_that_is_killed_costs_what_it_had_in_flight(story: Story) -> None:
    fill(story)
    with trouble(story, kill) as victims:
        summary = story.run(concurrency=CONCURRENCY, wait_ms="3")

    story.ensure_done(summary, repeated=None)
    ensure_few_repeats(story, victims[0], CONCURRENCY)  # all may be lent to it
    (event,) = (line for line in story.printed if "Spark repeats it" in line)
    assert re.match(r"\d\d:\d\d:\d\d  a task( on \S+)? fell silent \(shards? \d+", event)
    assert states(story.folder) == []


@pytest.mark.long
def test_a_worker_that_stood_still_beyond_its_lease_goes_on_if_no_other_took_over(
    story: Story,
) -> None:
    fill(story)
    with trouble(story, stop_for(LOCAL.lease_s + 2 * LOCAL.look_s, signal.SIGCONT)):
        summary = story.run(concurrency=CONCURRENCY, wait_ms="3")

    story.ensure_done(summary)
    silent = [each.limits.running for each in story.statuses if silent_tasks(each)]
    assert silent
    assert min(silent) == 0


def silent_tasks(status: Status) -> tuple[str, ...]:
    return status.engine.silent if isinstance(status.engine, SparkStatus) else ()


@pytest.mark.long
def test_lanes_that_a_stop_leaves_are_not_parked(story: Story) -> None:
    story.fill([[f"k{number}", f"j{number}"] for number in range(100)])
    with trouble(story, interrupt(1), after=20):
        stopped = story.run(concurrency=2, wait_ms="100")  # a stop may take seconds to arrive

    assert stopped.sub_messages.pending
    assert (stopped.parked.total, stopped.last.failures.parked_lanes) == (0, 0)


@pytest.mark.long
def test_a_stop_waits_for_what_is_in_flight_and_more_tasks_go_on(
    story: Story, ensure_let_go: Callable[[], None]
) -> None:
    fill(story)
    with trouble(story, interrupt(1)):
        stopped = story.run(concurrency=CONCURRENCY, wave_bytes=4_000, wait_ms="3")

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert stopped.sub_messages.done == len(story.places("end"))
    assert states(story.folder) == []
    ensure_let_go()

    resumed = story.resume(tasks=3)

    story.ensure_done(resumed)


@pytest.mark.long
def test_a_wave_that_was_read_while_the_drain_is_paused_is_handled_afterwards(story: Story) -> None:
    story.fill([["a", "b"]] * 30)
    story.handler = f"{HANDLER}:Slow"
    plan = parse_place(str(story.plan_path))

    def paused() -> bool:
        with suppress(Refused):  # while it is starting
            client.request(plan, Pause(None))
            return True
        return False

    def pause(_: int) -> None:
        eventually(paused, "the drain can be paused")
        try:
            eventually(lambda: any(map(waves, story.statuses)), "the wave is read")
            assert story.places("begin") == []
        finally:
            client.request(plan, Unpause())

    with trouble(story, pause, on="split", after=1):
        summary = story.run(split_s="0.02")

    story.ensure_done(summary)


def waves(status: Status) -> int:
    return status.engine.wave if isinstance(status.engine, SparkStatus) else 0


@pytest.mark.parametrize(
    ("met", "open_s", "split_s"),
    [
        pytest.param("open", "1", "0", id="while a handler is opened", marks=pytest.mark.long),
        pytest.param("split", "0", "0.02", id="while the first wave is read"),
    ],
)
def test_a_stop_before_anything_is_handled_leaves_nothing(
    story: Story,
    spark: SparkSession,
    ensure_let_go: Callable[[], None],
    met: str,
    open_s: str,
    split_s: str,
) -> None:
    fill(story)
    story.handler = f"{HANDLER}:Slow"
    with trouble(story, interrupt(1), on=met, after=1), suppress(Interrupted):
        story.run(concurrency=CONCURRENCY, open_s=open_s, split_s=split_s)

    assert story.places("begin") == []
    if not Session(spark).is_remote:
        tracker = spark.sparkContext.statusTracker()
        eventually(lambda: not tracker.getActiveJobsIds(), "all jobs end")
    opened = [line["pid"] for line in story.lines if line["what"] == "open"]
    eventually(lambda: not any(is_open(story, pid) for pid in opened), "no handler stays open")
    assert states(story.folder) == []
    ensure_let_go()


def is_open(story: Story, pid: int) -> bool:
    """Whether the process lives, and has not closed its handler."""
    whats = [line["what"] for line in story.lines if line["pid"] == pid]
    return Path(f"/proc/{pid}").exists() and whats.count("open") > whats.count("close")


@pytest.mark.long
def test_a_second_signal_ends_it_at_once_and_its_state_goes_on(story: Story) -> None:
    fill(story, "slow")
    with trouble(story, interrupt(2)):
        stopped = story.run(concurrency=CONCURRENCY, wait_ms="3", slow="slow")

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert states(story.folder) == [f"{story.plan_path.name}.state"]

    resumed = story.resume(tasks=1)

    story.ensure_done(resumed, repeated=None)
    assert story.repeated <= CONCURRENCY


@pytest.mark.long
def test_a_state_that_is_deleted_meanwhile_stops_it_and_what_was_reported_is_in_the_plan(
    story: Story,
) -> None:
    def delete(_: int) -> None:
        shutil.rmtree(f"{story.plan_path}.state")

    fill(story)
    with trouble(story, delete):
        stopped = story.run(concurrency=CONCURRENCY, wait_ms="3")

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert isinstance(stopped.cause, StateLost)
    assert f"{story.plan_path}.state" in str(stopped.cause)

    resumed = story.resume(tasks=2)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    story.ensure_all()
    assert story.plan.account.complete


@pytest.mark.long
def test_a_handler_that_workers_can_t_import_ends_the_drain_before_anything_is_handled(
    story: Story, ensure_let_go: Callable[[], None], tmp_path: Path
) -> None:
    fill(story)
    broken = tmp_path / "broken.py"
    broken.write_text(
        f"{HANDLER.read_text()}\n\n"
        "if 'pyspark.worker' in __import__('sys').modules:\n"
        "    import nothing_of_the_kind\n"
    )

    story.handler = f"{broken}:Recorder"

    with pytest.raises(Refused, match="No module named 'nothing_of_the_kind'"):
        story.run()

    assert not story.record.exists()
    assert states(story.folder) == []
    ensure_let_go()
