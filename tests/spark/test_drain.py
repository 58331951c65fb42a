"""Drains on Spark: the plan, failures, redrives, and the laws that slices, claims and odd handlers
could break."""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from core.letters import Sample
from drainer.engine.checkpointer import Checkpointer
from drainer.errors import EXIT_DEAD_LETTERS, EXIT_HALTED, EXIT_INTERRUPTED, Refused
from drainer.kafka.settings import ClientSettings
from drainer.message import Message, Origin, SubMessage, Unsplit
from drainer.model.claims import key_hash
from drainer.model.rate_cap import CapCurve, CapPoint
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.policy.rate_cap import BURST_S
from drainer.policy.redrive import NOT_MATCHED
from drainer.spark.assign import slicing
from drainer.spark.reading.slices import Manifest
from drainer.spark.state.state import State
from kafka.sender import letters_in, sending
from scenarios.fill import create_topic
from spark.story import FIXED, HANDLER, Op, Ops, Story, value_of
from spark.trouble import states, trouble


def messages(count: int, seed: int, *, keys: int = 40, ops: int = 5) -> list[Ops]:
    drawn = random.Random(seed)
    return [
        [f"k{int(keys * drawn.random() ** 2)}" for _ in range(drawn.randrange(ops * 2))]
        for _ in range(count)
    ]


def test_everything_is_handled_in_order_slice_by_slice_and_every_end_is_counted(
    story: Story, ensure_let_go: Callable[[], None]
) -> None:
    drawn = random.Random(8)
    mixed = messages(200, 5)
    for offset in (10, 11, 140):
        mixed[offset] = ["k1", None, "k2"]
    for offset in (25, 160):
        mixed[offset] = [[f"k{drawn.randrange(40)}", f"k{drawn.randrange(40)}"], "k3"]
    story.fill(messages(300, 4), mixed)
    rule = "sub_key == 'k7'"
    policy = FailureSettings(
        retries=1,
        retry_delay_s=0.01,
        on_failure=OnFailure.DEAD_LETTER,
        breaker=False,
        skip=(rule,),
    )

    summary = story.run(failures=policy, bad="k3", skip="k5", slice_bytes=5_000)

    ops = {
        (number, offset, index): op
        for number, each in story.messages.items()
        for offset, message in enumerate(each)
        for index, op in enumerate(message)
    }
    dead, skipped, ruled_out = (
        {p for p, op in ops.items() if op == key} for key in ("k3", "k5", "k7")
    )
    assert summary.engine_counts["slices"] > 2
    assert set(story.record.done()) == set(ops) - dead - skipped - ruled_out
    assert set(story.record.begun()) == set(ops) - ruled_out
    story.record.check_order()
    assert story.repeated == len(dead), "each is tried twice"
    assert (summary.exit_code, summary.conserved) == (EXIT_DEAD_LETTERS, True)
    assert summary.last.rules.skipped_by == {rule: len(ruled_out)}
    assert sum(summary.last.rules.skipped_for.values()) == len(skipped)
    assert summary.last.failures.failures == 2 * len(dead)
    subs = summary.sub_messages
    assert (subs.dead, subs.skipped) == (len(dead), len(skipped | ruled_out))
    dead_at, skipped_at = ({p[:2] for p in places} for places in (dead, skipped | ruled_out))
    assert summary.messages.dead == len(dead_at)
    assert summary.messages.skipped == len(skipped_at - dead_at)
    assert summary.messages.done == 500 - len(dead_at | skipped_at)
    assert story.committed == {0: 300, 1: 200}
    assert story.plan.account.complete
    assert story.plan.account.state is None
    assert states(story.folder) == []
    opened, closed = story.record.pids("open"), story.record.pids("close")
    assert len(opened) == len(set(opened))
    assert sorted(opened) == sorted(closed)
    ensure_let_go()


@pytest.mark.long
def test_messages_that_split_rejects_are_written_by_the_tasks_that_handle(story: Story) -> None:
    mixed = [messages(150, 21), messages(100, 22)]
    rejected = {(0, 17), (0, 18), (0, 120), (1, 33)}
    for number, offset in rejected:
        mixed[number][offset] = "!ValueError"
    mixed[0][60] = ["k3", None, "k4"]
    story.fill(*mixed)
    policy = FailureSettings(on_failure=OnFailure.DEAD_LETTER)

    summary = story.run(failures=policy, slice_bytes=8_000)

    assert summary.exit_code == EXIT_DEAD_LETTERS
    assert summary.conserved
    assert (summary.messages.dead, summary.messages.done) == (4, 246)
    assert (summary.sub_messages.dead, summary.sub_messages.unsplit) == (4, 4)
    letters = letters_in(story.settings.bootstrap_servers, f"{story.topic}.{story.group}.dead")
    assert sorted((each.message_partition, each.message_offset) for each in letters) == sorted(
        rejected
    ), "one of each"
    assert {each.payload for each in letters} == {b"!ValueError"}
    assert {place[:2] for place in story.everything - set(story.record.done())} == rejected
    story.record.check_order()
    assert story.committed == {0: 150, 1: 100}


@pytest.mark.long
def test_parking_cuts_the_slice_of_the_partition_where_split_rejects_a_message(
    story: Story,
) -> None:
    mixed = [messages(200, 23), messages(60, 24)]
    mixed[0][70] = mixed[0][90] = "!ValueError"
    story.fill(*mixed)
    policy = FailureSettings(on_split_failure=OnFailure.PARK)

    parked = story.run(failures=policy)

    assert parked.exit_code == EXIT_HALTED
    assert parked.conserved
    (lane,) = parked.parked.shown()
    assert (lane["key"], lane["place"]) == ("partition 0", f"{story.topic}/0/70[0]")
    expected = {place for place in story.everything if place[0] == 1 or place[1] < 70}
    assert set(story.record.done()) == expected
    assert story.committed == {0: 70, 1: 60}

    assert story.resume(fixed="1").exit_code == 0
    story.ensure_all()
    assert story.repeated == 0


def test_a_failure_halts_all_tasks_and_either_engine_goes_on_and_secrets_are_written_nowhere(
    story: Story, events: Path
) -> None:
    secret = "s3cret-of-the-drain"
    servers, login = story.settings.bootstrap_servers, {"sasl.password": secret}
    story.settings = ClientSettings(
        servers, {**login, "sasl.username": "u"}, {"http.token": secret}
    )
    story.fill(messages(400, 12))

    halted = story.run(failures=FailureSettings(retries=0), bad="k7", pause_ms="2", token=secret)

    assert halted.exit_code == EXIT_HALTED
    assert "the document is locked" in str(halted.cause)
    assert halted.sub_messages.pending or halted.sub_messages.read < len(story.everything)
    assert secret not in repr(halted)
    written = [path for path in events.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if secret.encode() in path.read_bytes()] == []
    assert secret.encode() not in story.plan_path.read_bytes()

    in_process = story.resume(tasks=None, token=secret)

    story.ensure_done(in_process, repeated=None)


@pytest.mark.long
def test_lanes_keep_their_order_across_200_slices_which_leave_nothing(
    story: Story, ensure_let_go: Callable[[], None]
) -> None:
    ops = [["hot", f"k{n % 7}", f"j{n % 3}"] for n in range(400)]
    story.fill(ops[:300], ops[300:])

    summary = story.run(slice_bytes=2 * (len(b"one") + len(value_of(ops[0]))))

    story.ensure_done(summary)
    assert summary.engine_counts["slices"] >= 150
    assert states(story.folder) == []
    ensure_let_go()


@pytest.mark.long
def test_reading_stays_below_its_cap_while_slices_overlap_and_one_is_read_again(
    story: Story,
) -> None:
    rate, length = 100, 100
    mixed: list[list[Ops]] = [[[f"k{n % 7}", f"j{n % 5}"] for n in range(200)] for _ in range(2)]
    mixed[1][70] = "!ValueError"  # Its slice is read again, up to this message.
    story.handler = f"{HANDLER}:Splits"
    story.fill(*mixed)
    limits = CapCurve("", 0.0, 1.0, (CapPoint(1, rate, rate), CapPoint(1_000, rate, rate)))
    policy = FailureSettings(on_split_failure=OnFailure.PARK)
    message_bytes = len(b"one") + len(value_of(mixed[0][0]))

    summary = story.run(
        limits=limits, failures=policy, slice_bytes=length * message_bytes, pause_ms="50"
    )

    assert summary.exit_code == EXIT_HALTED
    assert summary.engine_counts["slices"] >= 3
    read = sorted(line.at_s for line in story.record.whole() if line.mark == "split")
    assert len(read) > summary.messages.read, "a slice is read again"
    begun = [line.at_s for line in story.record.lines() if line.mark == "begun"]
    assert min(begun) < read[-1], "slices are read while others are handled"
    most = max(bisect(read, since_s + 1) - place for place, since_s in enumerate(read))
    # In a second, one slice may end and the next one begin, each with a burst.
    assert most <= rate * (1 + 2 * BURST_S)


def test_the_chunks_of_several_spans_of_a_partition_come_in_order(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "FIRST_SPAN_BYTES", 1)  # As many spans as there are slots.
    story.fill([["hot", f"k{n % 7}"] for n in range(400)])

    story.ensure_done(story.run())


PARKS = FailureSettings(retries=0, on_failure=OnFailure.PARK, breaker=False)


@pytest.mark.long
def test_messages_that_are_not_split_go_to_the_account_of_their_own_partition(story: Story) -> None:
    story.handler = f"{HANDLER}:Whole"
    story.fill([["x"]] * 5, [["x"]] * 9, [["x"]] * 40)

    summary = story.run()

    story.ensure_done(summary)
    assert story.committed == {0: 5, 1: 9, 2: 40}


@pytest.mark.long
def test_a_barrier_does_not_pass_what_was_parked_before_it(story: Story) -> None:
    ops: list[list[Op]] = [["k1"], ["bad"], ["k2"], ["k4", None, "k5"], ["k1"], ["k3"], [None]]
    story.fill(ops, [["k1"]] * 5)

    left = story.run(failures=PARKS, bad="bad", slice_bytes=50)

    assert left.exit_code == EXIT_HALTED
    assert left.sub_messages.pending + left.sub_messages.done == left.sub_messages.read == 14
    assert sorted(place for place in story.record.done() if place[0] == 0) == [
        (0, 0, 0),
        (0, 2, 0),
        (0, 3, 0),
    ]
    assert len([place for place in story.record.done() if place[0] == 1]) == 5
    assert story.committed == {0: 1, 1: 5}

    rest = story.resume(tasks=3)

    story.ensure_done(rest, repeated=1)


@pytest.mark.long
def test_a_slice_that_stops_at_a_message_does_not_pass_an_earlier_barrier(story: Story) -> None:
    """It is read while the slice with the barrier is handled, so before the barrier is parked."""
    story.fill([["slow", "bad"], [None], ["k1"], "!ValueError"])
    policy = replace(PARKS, on_split_failure=OnFailure.PARK)

    left = story.run(failures=policy, bad="bad", slice_bytes=30, pause_ms="3000")

    assert left.exit_code == EXIT_HALTED
    assert left.engine_counts["slices"] == 2
    assert story.record.done() == [(0, 0, 0)]

    story.ensure_done(story.resume(fixed="1"), repeated=1)


@pytest.mark.long
def test_parked_lanes_stay_parked_from_slice_to_slice(story: Story) -> None:
    story.fill([["bad" if n == 3 else f"k{n % 4}", f"k{n % 3}"] for n in range(60)], [["bad"]] * 3)

    left = story.run(failures=PARKS, bad="bad", slice_bytes=200)

    assert left.engine_counts["slices"] > 3
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
    story.record.check_order()


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
    ops[20] = [None]  # Other tasks handle the operations behind it.
    story.fill(ops)
    up = story.folder / "up"

    with trouble(story, lambda _: up.touch(), on="failed", after=5):
        summary = story.run(up=str(up), down_from="21", failures=FailureSettings(retries=0))

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.last.failures.failures > 0
    assert set(story.record.done()) == story.everything


@pytest.mark.long
def test_all_tasks_together_give_up_no_more_than_they_may(story: Story) -> None:
    story.fill([["bad", ["bad", "worse"]] if n < 6 else [f"k{n}"] for n in range(12)])
    policy = FailureSettings(
        retries=0, on_failure=OnFailure.DEAD_LETTER, breaker=False, max_failures=Limit(count=5)
    )

    summary = story.run(failures=policy, bad="bad")

    assert summary.exit_code == EXIT_HALTED
    assert "gave up" in str(summary.cause)


@pytest.mark.long
def test_a_task_with_many_lanes_has_the_calls_that_one_with_a_hot_lane_can_t_make(
    story: Story,
) -> None:
    # The slice has two shards: one of them has the hot lane, and the other one all other lanes.
    others = (f"k{n}" for n in range(10_000) if key_hash(f"k{n}") % 2 != key_hash("hot") % 2)
    story.fill([["hot", *islice(others, 5)] for _ in range(150)])

    summary = story.run(concurrency=8, pause_ms="50")

    assert summary.exit_code == 0
    story.ensure_all()
    running, most = Counter[int](), Counter[int]()
    for line in story.record.lines():
        for who in (0, line.pid):
            running[who] += 1 if line.mark == "begun" else -1
        most |= running
    assert most[0] <= 8
    assert max(calls for pid, calls in most.items() if pid) > 4


@pytest.mark.long
def test_slices_without_connections_go_to_all_tasks_and_others_to_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(1)

    def lanes() -> list[str]:
        return [f"k{drawn.randrange(10_000):04}" for _ in range(3)]

    # All messages have the same size, so that each slice has ``length`` of them.
    length = 60
    plain: list[list[Op]] = [[*lanes()] for _ in range(6 * length)]
    few = [f"k{n}" for n in range(8)]
    connected: list[list[Op]] = [
        [drawn.sample(few, 2), drawn.choice(few), f"k{n:03}"] for n in range(length)
    ]
    ops = [*plain[: 3 * length], *connected, *plain[3 * length :]]
    (message_bytes,) = {len(b"one") + len(value_of(each)) for each in ops}
    story.fill(ops)

    summary = story.run(slice_bytes=length * message_bytes, pause_ms="2")

    story.ensure_done(summary)
    assert summary.engine_counts["slices"] == 7
    tasks: dict[int, set[int]] = defaultdict(set)
    for line in story.record.lines():
        tasks[line.place[1] // length].add(line.pid)
    assert len(tasks[0] | tasks[1] | tasks[2]) == 2
    assert len(tasks[3]) == 1
    assert len(tasks[4]) == 1, "it is read undivided, since the slice before was connected"
    assert len(tasks[5] | tasks[6]) == 2


LETTERS = 60


def write_letters(story: Story) -> None:
    """Write ten letters for each of the sub-keys k0 to k5. Each message has two sub-messages.

    Two more are of a message that ``split`` rejected, and of a sub-message without its payload.
    """
    create_topic(story.settings, story.topic, 2)
    with sending(story.settings, story.topic) as sender:
        for number in range(LETTERS):
            key = f"k{number % 6}"
            sub = SubMessage(key, key)
            sub.message = Message(Origin("orders", "orders-id", 0), number // 2, b"k", b"v", 1)
            sub.index = number % 2
            sender.send(Sample(sub=sub, attempts=0).letter())
        unit = Unsplit(b"!", "ValueError", "no", "ValueError: no")
        unit.message, unit.index = Message(Origin("orders", "orders-id", 0), 999, b"k", b"!", 1), 0
        sender.send(Sample(sub=unit, attempts=0).letter())
        sender.send(Sample(sub=SubMessage("k9", "too large")).letter().without_payload())
        *others, last = sender.all_reported()
        assert set(others) == {None}
        assert last is not None, "it has no payload"


@pytest.mark.long
def test_letters_are_redriven_in_order_and_those_left_alone_stay(story: Story) -> None:
    write_letters(story)

    chosen = story.redrive(["k0", "k1", "k2", "k3"], bad="k1", fixed="1")

    messages = chosen.messages
    assert (chosen.exit_code, chosen.cause) == (EXIT_DEAD_LETTERS, None)
    assert (messages.read, messages.done, messages.dead, messages.pending) == (62, 30, 10, 22)
    assert (messages.skipped, chosen.sub_messages.pending) == (0, 22 - 1 + len(FIXED))
    assert chosen.left_alone == {NOT_MATCHED: 22}
    assert chosen.engine_counts["slices"] > 1
    assert {line.keys for line in story.record.lines()} == {("k0",), ("k1",), ("k2",), ("k3",)}
    story.record.check_order()

    story.plan_path.unlink()

    rest = story.redrive(tasks=None, fixed="1")

    assert (rest.exit_code, rest.messages.pending) == (EXIT_DEAD_LETTERS, 1), "without its payload"
    assert list((rest.left_alone or {}).values()) == [1]
    ended = story.record.done()
    assert len(ended) == len(set(ended)) == LETTERS + len(FIXED)


@pytest.mark.long
def test_a_span_that_is_read_again_must_be_what_was_read_first(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fill(messages(200, 6))
    submit = State.submit

    def read_by_another(state: State, epoch: int, number: int) -> None:
        submit(state, epoch, number)
        if number == 2:
            state.add_span(epoch, number, 0, Manifest(0, 0, 1, subs={0: 9}, checksums={0: 1}))

    monkeypatch.setattr(State, "submit", read_by_another)

    stopped = story.run(slice_bytes=2_000)

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert "9 sub-messages were lost and read again" in str(stopped.cause)
    monkeypatch.undo()
    story.ensure_done(story.resume())


@pytest.mark.long
def test_what_split_rejects_is_in_the_plan_before_tasks_handle_the_slice(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = messages(60, 25)
    mixed[20] = "!ValueError"
    story.fill(mixed)
    give, wait, order = State.give, Checkpointer.wait_until_written, list[str]()

    async def wait_until_written(checkpointer: Checkpointer) -> None:
        await wait(checkpointer)
        reference = story.plan.account.state
        assert reference is not None
        order.append(reference.units[0])

    def look(state: State, *given: Any) -> None:
        order.append("given")
        give(state, *given)

    monkeypatch.setattr(Checkpointer, "wait_until_written", wait_until_written)
    monkeypatch.setattr(State, "give", look)

    policy = FailureSettings(on_failure=OnFailure.DEAD_LETTER)
    assert story.run(failures=policy).exit_code == EXIT_DEAD_LETTERS

    assert order[:2] == ["20", "given"]
