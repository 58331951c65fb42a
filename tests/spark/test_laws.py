"""What could break the laws in a drain on Spark: waves, claims, and handlers that do odd things."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from drainer.errors import EXIT_HALTED, Refused
from drainer.kafka.settings import ClientSettings
from drainer.model.order import Order
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.spark.state import State
from spark.story import HANDLER, Op, Story
from spark.trouble import When

PARKS = FailureSettings(on_failure=OnFailure.PARK, breaker=False)


def test_messages_that_are_not_split_go_to_the_account_of_their_own_partition(story: Story) -> None:
    story.handler = f"{HANDLER}:Whole"
    story.fill([["x"]] * 5, [["x"]] * 9, [["x"]] * 40)

    summary = story.run()

    assert (summary.exit_code, summary.cause) == (0, None)
    story.ensure_all()
    assert story.repeated == 0
    assert story.committed == {0: 5, 1: 9, 2: 40}


def test_a_split_that_is_another_one_after_a_resume_halts_the_drain(story: Story) -> None:
    story.handler = f"{HANDLER}:Turning"
    story.fill([[f"k{n}", f"k{n + 1}", f"k{n + 2}"] for n in range(20)])
    story.run(fail="k9", failures=FailureSettings(retries=0))
    before = len(story.lines)

    summary = story.resume()

    assert summary.exit_code == EXIT_HALTED
    assert "split is not deterministic" in str(summary.cause)
    assert "begin" not in [line["what"] for line in story.lines[before:]]


@pytest.mark.parametrize("wave_bytes", [pytest.param(2**31, marks=pytest.mark.long), 80])
def test_a_barrier_does_not_pass_what_was_parked_before_it(story: Story, wave_bytes: int) -> None:
    ops: list[list[Op]] = [["k1"], ["bad"], ["k2"], ["k4", "|", "k5"], ["k1"], ["k3"], ["|"]]
    story.fill(ops, [["k1"]] * 5)

    left = story.run(failures=PARKS, fail="bad", wave_bytes=wave_bytes)

    assert left.exit_code == EXIT_HALTED
    assert left.sub_messages.pending + left.sub_messages.done == left.sub_messages.read == 14
    assert sorted(place for place in story.places("end") if place[0] == 0) == [
        (0, 0, 0),
        (0, 2, 0),
        (0, 3, 0),
    ]
    assert len([place for place in story.places("end") if place[0] == 1]) == 5
    assert story.committed == {0: 1, 1: 5}

    rest = story.resume(tasks=3)

    assert (rest.exit_code, rest.cause) == (0, None)
    story.ensure_all()
    assert story.repeated == 1  # the one that failed


def test_parked_lanes_stay_parked_from_wave_to_wave(story: Story) -> None:
    story.fill([["bad" if n == 3 else f"k{n % 4}", f"k{n % 3}"] for n in range(60)], [["bad"]] * 3)

    left = story.run(failures=PARKS, fail="bad", wave_bytes=400)

    assert left.engine_counts["waves"] > 3
    assert left.exit_code == EXIT_HALTED
    assert left.last.failures.failures == 1
    assert left.sub_messages.pending == 4
    assert story.plan.account.counts()[0].pending == 4
    assert [lane.key for lane in left.parked.first] == ["'bad'"]
    assert left.parked.first[0].place.split("/", 1)[1] in ("0/3[0]", "1/0[0]")
    assert story.plan.account.parked_lanes == left.parked

    rest = story.resume(tasks=5)

    assert (rest.exit_code, rest.cause) == (0, None)
    assert rest.sub_messages.done == len(story.everything)
    assert rest.messages.done == 63
    story.ensure_order()


def test_a_handler_that_can_not_be_opened_is_refused_and_nothing_is_touched(story: Story) -> None:
    story.handler = f"{HANDLER}:Shut"
    story.fill([["k1"]] * 10)

    with pytest.raises(Refused, match="the index is down"):
        story.run()

    assert story.committed == {0: None}
    assert list(story.folder.iterdir()) == []


@pytest.mark.long
def test_tasks_without_anything_to_do_hold_nothing_up(story: Story) -> None:
    story.fill([["only"]] * 30 + [[]] * 300, [])

    summary = story.run(tasks=4, wave_bytes=2_000)

    assert (summary.exit_code, summary.cause) == (0, None)
    assert (summary.messages.done, summary.sub_messages.done) == (330, 30)
    assert story.committed == {0: 330, 1: 0}


@pytest.mark.long
def test_waves_of_large_messages_end_early_and_lose_nothing(story: Story) -> None:
    story.fill([[f"k{n % 7}", "x" * 60_000] for n in range(50)], [["k1"]] * 50)

    summary = story.run(wave_bytes=300_000)

    assert (summary.exit_code, summary.cause) == (0, None)
    story.ensure_all()
    assert story.repeated == 0


@pytest.mark.long
def test_what_tasks_told_of_deals_that_the_plan_has_is_not_kept(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fill([[f"k{n % 7}"] for n in range(80)])
    kept: list[set[int]] = []
    remove = State.remove

    def look_and_remove(state: State, *plan: Path) -> None:
        kept.append({attempt.deal for attempt in state.attempts()})
        remove(state, *plan)

    monkeypatch.setattr(State, "remove", look_and_remove)
    summary = story.run(wave_bytes=250)

    assert summary.exit_code == 0
    assert summary.engine_counts["waves"] > 4
    assert len(kept[-1]) < summary.engine_counts["waves"]
    assert 1 not in kept[-1]


@pytest.mark.long
def test_nothing_waits_behind_a_hot_lane_from_wave_to_wave(story: Story) -> None:
    story.fill([["hot"] * 500] + [[f"k{n % 40}"] for n in range(400)])

    summary = story.run(wave_bytes=3_000, wait_ms="20")

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.engine_counts["waves"] > 2
    story.ensure_all()
    assert story.repeated == 0
    ends = {tuple(line["place"]): line["at"] for line in story.lines if line["what"] == "end"}
    last_of_hot = ends[0, 0, 499]
    assert len([at for at in ends.values() if at > last_of_hot]) < 20


def test_no_more_is_handled_at_once_than_was_asked_for(story: Story) -> None:
    story.fill([[f"k{n}"] for n in range(30)])

    summary = story.run(tasks=4, concurrency=1, order=Order.PARTITION)

    assert summary.exit_code == 0
    steps = [line["what"] for line in story.lines if line["what"] in ("begin", "end")]
    assert all(one != other for one, other in pairwise(steps))
    assert story.places("end") == sorted(story.everything)


@pytest.mark.long
def test_an_outage_as_a_task_begins_is_waited_for_since_earlier_ones_succeeded(
    story: Story,
) -> None:
    ops: list[list[Op]] = [[f"k{n % 7}", f"k{n % 5}"] for n in range(40)]
    ops[20] = ["|"]  # what follows is for other tasks
    story.fill(ops)
    up = story.folder / "up"

    def repair(_: int) -> None:
        time.sleep(2)
        up.touch()

    with When(story, "failed", repair):
        summary = story.run(up=str(up), down_from="21", failures=FailureSettings(retries=0))

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.last.failures.failures > 0
    assert set(story.places("end")) == story.everything


@pytest.mark.long
def test_all_tasks_together_give_up_no_more_than_they_may(story: Story) -> None:
    story.fill([["bad", ["bad", "worse"]] if n < 6 else [f"k{n}"] for n in range(12)])
    policy = FailureSettings(
        on_failure=OnFailure.DEAD_LETTER, breaker=False, max_failures=Limit(count=5)
    )

    summary = story.run(failures=policy, fail="bad")

    assert summary.exit_code == EXIT_HALTED
    assert "gave up" in str(summary.cause)


def test_secrets_are_in_nothing_that_spark_writes_down(story: Story, events: Path) -> None:
    secret = "s3cret-of-the-drain"
    story.settings = ClientSettings(
        story.settings.bootstrap_servers, {"sasl.password": secret, "sasl.username": "u"}
    )
    story.fill([["k1", "k2"]] * 20, [["bad"]])

    halted = story.run(fail="bad", token=secret)

    assert halted.exit_code == EXIT_HALTED
    assert secret not in repr(halted)
    written = [path for path in events.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if secret.encode() in path.read_bytes()] == []
    assert secret.encode() not in story.plan_path.read_bytes()
