"""Laws of a drain on Spark that waves, claims and odd handlers could break."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import orjson
import pytest

from drainer.errors import EXIT_HALTED, Refused
from drainer.kafka.settings import ClientSettings
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.spark.assign import work
from spark.story import HANDLER, Op, Story
from spark.trouble import trouble

PARKS = FailureSettings(on_failure=OnFailure.PARK, breaker=False)


def test_messages_that_are_not_split_go_to_the_account_of_their_own_partition(story: Story) -> None:
    story.handler = f"{HANDLER}:Whole"
    story.fill([["x"]] * 5, [["x"]] * 9, [["x"]] * 40)

    summary = story.run()

    story.ensure_done(summary)
    assert story.committed == {0: 5, 1: 9, 2: 40}


@pytest.mark.long
def test_a_barrier_does_not_pass_what_was_parked_before_it(story: Story) -> None:
    ops: list[list[Op]] = [["k1"], ["bad"], ["k2"], ["k4", "|", "k5"], ["k1"], ["k3"], ["|"]]
    story.fill(ops, [["k1"]] * 5)

    left = story.run(failures=PARKS, fail="bad", wave_bytes=80)

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

    story.ensure_done(rest, repeated=1)


@pytest.mark.long
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
def test_an_outage_as_a_task_begins_is_waited_for_since_earlier_ones_succeeded(
    story: Story,
) -> None:
    ops: list[list[Op]] = [[f"k{n % 7}", f"k{n % 5}"] for n in range(40)]
    ops[20] = ["|"]  # Other tasks handle the operations behind it.
    story.fill(ops)
    up = story.folder / "up"

    with trouble(story, lambda _: up.touch(), on="failed", after=5):
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
        story.settings.bootstrap_servers,
        {"sasl.password": secret, "sasl.username": "u"},
        {"http.token": secret},
    )
    story.fill([["k1", "k2"]] * 20, [["bad"]])

    halted = story.run(fail="bad", token=secret)

    assert halted.exit_code == EXIT_HALTED
    assert secret not in repr(halted)
    written = [path for path in events.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if secret.encode() in path.read_bytes()] == []
    assert secret.encode() not in story.plan_path.read_bytes()


@pytest.mark.long
def test_a_task_with_many_lanes_has_the_calls_that_one_with_a_hot_lane_can_t_make(
    story: Story,
) -> None:
    story.fill([["hot", *(f"k{5 * n + i}" for i in range(5))] for n in range(150)])

    summary = story.run(concurrency=8, wait_ms="6")

    assert summary.exit_code == 0
    story.ensure_all()
    running, most = Counter[int](), Counter[int]()
    for line in sorted(story.lines, key=lambda each: each["at"]):
        if line["what"] in ("begin", "end"):
            by = 1 if line["what"] == "begin" else -1
            for who in (0, line["pid"]):
                running[who] += by
            most |= running
    assert most[0] <= 8
    assert max(calls for pid, calls in most.items() if pid) > 4


@pytest.mark.long
def test_waves_without_connections_go_to_all_tasks_and_others_to_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "WORTH_BYTES", 1)  # Any sub-message is worth a task of its own.
    drawn = random.Random(1)

    def lanes() -> list[str]:
        return [f"k{drawn.randrange(10_000):04}" for _ in range(3)]

    # All messages have the same size, so that each wave has ``length`` of them.
    length = 60
    plain: list[list[Op]] = [[*lanes()] for _ in range(6 * length)]
    few = [f"k{n}" for n in range(8)]
    connected: list[list[Op]] = [
        [drawn.sample(few, 2), drawn.choice(few), f"k{n:03}"] for n in range(length)
    ]
    ops = [*plain[: 3 * length], *connected, *plain[3 * length :]]
    (message_bytes,) = {len(b"one") + len(orjson.dumps({"ops": each})) for each in ops}
    story.fill(ops)

    summary = story.run(wave_bytes=length * message_bytes, wait_ms="2")

    story.ensure_done(summary)
    assert summary.engine_counts["waves"] == 7
    tasks: dict[int, set[int]] = defaultdict(set)
    for line in story.lines:
        if line["what"] == "begin":
            tasks[line["place"][1] // length].add(line["pid"])
    assert len(tasks[0] | tasks[1] | tasks[2]) == 2
    assert len(tasks[3]) == 1
    assert len(tasks[4]) == 1, "it is read undivided, since the wave before was connected"
    assert len(tasks[5] | tasks[6]) == 2
