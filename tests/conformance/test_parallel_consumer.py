"""Parallel Consumer's scenarios of offsets: what is incomplete above the committed offset, and what
the brokers or a person may do to the log and to the group between two runs.

Source: confluentinc/parallel-consumer, ``OffsetEncodingTests``, ``OffsetEncodingBackPressureTest``,
``WorkManagerOffsetMapCodecManagerTest``, ``PartitionStateCommittedOffsetTest`` and its integration
test ``…IT``, ``TransactionMarkersTest`` (its issue 329) and ``TransactionTimeoutsTest``,
https://github.com/confluentinc/parallel-consumer/tree/master/parallel-consumer-core/src

It keeps the completed offsets above the committed one in the commit's metadata, at most 4 KiB, and
drainer keeps them in a plan. Where that makes another promise:

- When its map would get too large, it takes no more messages until some complete. drainer's plan
  has no such limit, so a stuck message stops nothing but its lane.
- When the group's offset was moved, it starts from there, and drops what it knows below. drainer
  refuses to resume, because either side may be right, and starts from there only without a plan.
- When the group has no offset, it starts by the reset policy. drainer has none, and asks.
- When retention took what is incomplete, it truncates its map and goes on. drainer refuses, and
  goes on after ``--accept-gap``: see tests/command/test_outside.py. What compaction took is passed
  by both.
- Metadata that Kafka Streams wrote is an error to it, or ignored by policy. drainer reads none: see
  tests/kafka/test_commit.py.
- Its commit waits for calls in flight in its transactional mode, and times out. drainer's commits
  wait for no call, so a slow one costs only what is behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from builders import progress_at
from command.conftest import distinct
from command.process import Command
from command.record import every_place
from core.messages import is_finished, message_at, written_and_read
from drainer.core.ledger import Ledger
from drainer.message import Message, SubMessage
from drainer.model.progress import Progress
from drainer.model.ranges import ranges_of
from drainer.model.settings import FailureSettings
from engine.made_up_kafka import (
    UNHURRIED,
    Kind,
    OnTheLoop,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    in_lanes,
    log_of,
)
from fake_kafka import Log, Record
from kafka.topic import WAIT_S, Topic, eventually

pytestmark = pytest.mark.long

# --- what is incomplete, written and read back ---


def deliver(ledger: Ledger, offsets: Sequence[int]) -> dict[int, Message]:
    """Deliver messages of one sub-message to a ledger, those that it wants."""
    messages = {offset: message_at(offset) for offset in offsets if ledger.wants(offset)}
    for message in messages.values():
        ledger.deliver(message, ("k",), 1)
    return messages


def worked_on(offsets: Sequence[int], incomplete: set[int], end: int) -> Ledger:
    """A ledger that was given these offsets, of which all but these have completed."""
    ledger = Ledger(offsets[0], end)
    for offset, message in deliver(ledger, offsets).items():
        if offset not in incomplete:
            ledger.finish(message, 0)
    return ledger


def incompletes(written: Progress, offsets: Sequence[int]) -> set[int]:
    return {offset for offset in offsets if not is_finished(written, offset)}


@pytest.mark.parametrize("highest", [10_000, 100_000])
def test_a_few_incomplete_offsets_among_very_many_are_read_back(highest: int) -> None:
    """``largeIncompleteOffsetValues``: 123, 2,345 and 8,765."""
    low, incomplete = 123, {123, 2_345, 8_765}
    offsets = range(low, highest)
    written = written_and_read(worked_on(offsets, incomplete, highest).progress())
    assert written.watermark == low
    assert incompletes(written, offsets) == incomplete


@given(st.text("ox", min_size=1, max_size=200), st.sampled_from([0, 2**15 - 3, 2**31 - 7, 2**40]))
def test_any_pattern_of_incomplete_and_complete_is_read_back(pattern: str, start: int) -> None:
    """``differentInputsAndCompressions``, and the overflows of ``RunLengthEncoderTest``."""
    offsets = range(start, start + len(pattern))
    incomplete = {offset for offset, mark in zip(offsets, pattern, strict=True) if mark == "o"}
    ledger = worked_on(offsets, incomplete, offsets.stop)
    assert incompletes(written_and_read(ledger.progress()), offsets) == incomplete
    assert ledger.watermark == min(incomplete, default=offsets.stop)


@given(st.data())
def test_offsets_that_are_very_large_and_not_sequential_are_read_back(data: st.DataObject) -> None:
    """``ensureEncodingGracefullyWorksWhenOffsetsAreVeryLargeAndNotSequential``."""
    gaps = data.draw(st.lists(st.sampled_from([1, 1, 2, 40_000, 2**31, 2**40]), min_size=1))
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    incomplete = set(data.draw(st.lists(st.sampled_from(offsets), unique=True)))
    ledger = worked_on(offsets, incomplete, offsets[-1] + 1)
    assert incompletes(written_and_read(ledger.progress()), offsets) == incomplete


def test_an_account_in_which_one_is_swapped_is_found_out() -> None:
    """Sabotage: the incomplete one is another."""
    offsets = range(10)
    written = worked_on(offsets, {3}, 10).progress()
    swapped = replace(written, watermark=0, finished=ranges_of([0, 1, 2, 3, *range(5, 10)]))
    assert incompletes(written_and_read(written), offsets) == {3}
    assert incompletes(written_and_read(swapped), offsets) == {4}


# --- what compaction took between two runs ---

COMMITTED, SEEN = 11, 101
TRACKED = [COMMITTED, 15, 20, 60, 80, 95, 96, 97, 98, 100]
MISSING = {80, 95, 97}


def test_incomplete_offsets_that_were_compacted_away_are_incomplete_no_more() -> None:
    """``compactedTopic``. Those that were not read yet stay, whether or not they are there."""
    finished = ranges_of([o for o in range(COMMITTED + 1, SEEN + 1) if o not in TRACKED])
    ledger = Ledger(0, SEEN + 1, progress_at(COMMITTED, finished=finished))
    read_to = SEEN - 2
    deliver(ledger, [offset for offset in range(COMMITTED, read_to) if offset not in MISSING])
    written = written_and_read(ledger.progress())
    assert written.watermark == COMMITTED
    assert incompletes(written, range(SEEN + 1)) - {*range(COMMITTED)} == {*TRACKED} - MISSING
    ledger.reach(SEEN + 1)
    assert ledger.first_pending is not None
    assert not ledger.complete


@both_kinds
def test_a_drain_resumes_on_a_log_that_was_compacted_under_it(
    kind: Kind, virtual: VirtualDrains
) -> None:
    """Whatever completed or not was compacted away, the rest is handled, once, to the end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    rehearsal = virtual.rehearsal(in_lanes(100, 30))

    def step(sub: SubMessage) -> float:
        if sub.message.offset == 40:
            virtual.signal("SIGTERM")
        return chance.random() / 50

    first = virtual.handler(kind, step)
    assert rehearsal.drain(first).exit_code == 4
    log = rehearsal.logs[0]
    gone = set(chance.sample(sorted(log.records), 60)) | {99}  # the end is a hole, too
    for offset in gone:
        del log.records[offset]
    second = virtual.handler(kind, lambda sub: chance.random() / 50)
    assert rehearsal.drain(second).exit_code == 0
    assert not {place[1] for place in second.account.began} & gone
    handled = [*first.account.finished, *second.account.finished]
    assert len(handled) == len(set(handled))
    assert {place[1] for place in handled} >= set(range(100)) - gone
    assert rehearsal.group.committed == {0: 100}


def stop_once(virtual: VirtualDrains, rehearsal: Rehearsal, condition: Callable[[], bool]) -> None:
    """Stop the drain by a signal when a status is taken at which the condition is true."""

    def look(status: object) -> None:
        if condition():
            rehearsal.observe = lambda status: None
            virtual.signal("SIGTERM")

    rehearsal.observe = look


# --- what the map of incomplete offsets costs ---


def test_no_map_of_incomplete_offsets_is_too_large() -> None:
    """Every second one is what takes most space: 10,000 bytes as a bitmap, where 4 KiB may be."""
    offsets = range(80_000)
    incomplete = set(offsets[::2])
    written = written_and_read(worked_on(offsets, incomplete, offsets.stop).progress())
    assert incompletes(written, [*offsets[:50], *offsets[-50:]]) == {
        *offsets[:50:2],
        *offsets[-50::2],
    }
    assert len(written.finished) == len(incomplete)


def test_a_stuck_message_stops_its_lane_and_nothing_else(virtual: VirtualDrains) -> None:
    """``OffsetEncodingBackPressureTest``, the other way round: every second one waits for it, and
    all others are handled before it.
    """
    count = 2_000
    logs = {0: log_of(*(["stuck"] if n % 2 == 0 else [f"k{n}"] for n in range(count)))}
    settings = replace(UNHURRIED, concurrency=100, grace_s=0.1)
    rehearsal = virtual.rehearsal(logs, settings)
    others = {(0, offset, 0) for offset in range(1, count, 2)}

    def step(sub: SubMessage) -> float:
        return 1e6 if sub.key == "stuck" else 0.001

    first = virtual.handler(OnTheLoop, step)
    stop_once(virtual, rehearsal, lambda: len(first.account.finished) == len(others))
    assert rehearsal.drain(first).exit_code == 4
    assert set(first.account.finished) == others
    assert rehearsal.group.committed == {0: 0}

    second = virtual.handler(OnTheLoop, lambda sub: 0.0)
    assert rehearsal.drain(second).exit_code == 0
    assert set(second.account.finished) == rehearsal.places - others
    assert len(second.account.began) == len(rehearsal.places - others)


# --- commits that take their time, and calls that take longer ---


def test_what_completes_during_a_commit_is_in_the_next_one(virtual: VirtualDrains) -> None:
    """``workCompletedDuringAsyncCommitShouldKeepStateAsDirty``, and ``produceTimeout``: calls go on
    while a commit takes seconds.
    """
    rehearsal = virtual.rehearsal(in_lanes(100))
    check, commits = rehearsal.group.allowed, list[int]()

    def slow_at_first(offsets: dict[int, int]) -> None:
        check(offsets)
        if not commits:
            virtual.sleep(5.0)
            assert len(handler.account.finished) == 99, "calls waited for the commit"
        commits.append(offsets[0])

    rehearsal.group.allowed = slow_at_first  # type: ignore[assignment]
    handler = virtual.handler(OnTheLoop, lambda sub: 20.0 if sub.message.offset == 99 else 0.02)
    assert rehearsal.drain(handler).exit_code == 0
    assert 0 < commits[0] < 99
    assert 99 in commits, "what had completed meanwhile waited for the last one"
    assert rehearsal.group.committed == {0: 100}


SLOW, ERRS = 8, 12  # OFFSET_TO_GO_SLOW, OFFSET_TO_ERROR


@pytest.mark.parametrize(
    ("takes_s", "incomplete"),
    [pytest.param(2.0, {ERRS}, id="less-than-grace"), pytest.param(50.0, {SLOW, ERRS}, id="more")],
)
def test_a_stop_records_what_was_slow_and_what_failed_as_incomplete(
    takes_s: float, incomplete: set[int], virtual: VirtualDrains
) -> None:
    """``commitTimeout``: five messages, then ten more, with a shutdown timeout of five seconds."""
    rehearsal = virtual.rehearsal(in_lanes(15), replace(UNHURRIED, grace_s=5.0))
    rehearsal.failures = FailureSettings(retries=1_000, retry_delay_s=0.1, retry_max_delay_s=0.1)

    def step(sub: SubMessage) -> float:
        if sub.message.offset == ERRS:
            raise ValueError("fail")
        return takes_s if sub.message.offset == SLOW else 0.01

    handler = virtual.handler(OnTheLoop, step)
    stop_once(
        virtual,
        rehearsal,
        lambda: rehearsal.group.committed == {0: SLOW} and len(handler.account.finished) == 13,
    )
    assert rehearsal.drain(handler).exit_code == 4
    done = {offset for _, offset, _ in rehearsal.finished_by_the_plan()}
    assert set(range(15)) - done == incomplete
    assert rehearsal.group.committed == {0: min(incomplete)}


# --- markers of transactions ---

Scenario = tuple[int, int, int]  # transactions one after the other, at once, and records after them


SCENARIOS = {
    "single": (1, 0, 1),
    "double": (2, 0, 0),
    "several": (10, 0, 10),
    "overlapping": (0, 3, 2),
    "markers-only-behind": (1, 3, 0),
}
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


def made_of(scenario: Scenario) -> list[bool]:
    """Whether there is a record at each offset of a log, or a marker."""
    alone, together, plain = scenario
    return [*[True, False] * alone, *[True] * together, *[False] * together, *[True] * plain]


@pytest.mark.parametrize("limit", [1, 3, 100])
@every_scenario
def test_a_commit_beside_markers_is_at_the_next_record_or_at_the_end(
    scenario: Scenario, limit: int, virtual: VirtualDrains
) -> None:
    """``TransactionMarkersTest``: all records beyond the limit block, and the drain is stopped."""
    made = made_of(scenario)
    records = [offset for offset, is_record in enumerate(made) if is_record]
    by_offset = {offset: Record(b"", b'["k%d"]' % offset) for offset in records}
    log = Log(0, len(made), len(made), by_offset)
    blocked = records[limit:]
    rehearsal = virtual.rehearsal({0: log}, replace(UNHURRIED, grace_s=0.1))
    first = virtual.handler(OnTheLoop, lambda sub: 1e6 if sub.message.offset in blocked else 0.001)
    expected = blocked[0] if blocked else log.end
    stop_once(virtual, rehearsal, lambda: rehearsal.group.committed == {0: expected})
    assert rehearsal.drain(first).exit_code == (4 if blocked else 0)
    assert rehearsal.group.committed == {0: expected}
    if blocked:
        second = virtual.handler(OnTheLoop, lambda sub: 0.001)
        assert rehearsal.drain(second).exit_code == 0
        assert sorted(second.account.began) == [(0, offset, 0) for offset in blocked]
    assert rehearsal.group.committed == {0: len(made)}


def produce(topic: Topic, scenario: Scenario, values: list[str]) -> None:
    alone, together, _ = scenario
    left = iter(values)
    for _ in range(alone):
        topic.transact([next(left)], commit=True)
    for producer in [topic.open_transaction([next(left)]) for _ in range(together)]:
        producer.commit_transaction(WAIT_S)
    topic.produce([*left])


@pytest.mark.parametrize("limit", [1, 3])
@every_scenario
def test_a_killed_drain_goes_on_between_the_markers_of_a_broker(
    command: Command, scenario: Scenario, limit: int
) -> None:
    made = made_of(scenario)
    count = sum(made)
    values = [f'["k{n}"]' if n < limit else '["stuck"]' for n in range(count)]
    topic = command.topic()
    produce(topic, scenario, values)
    records = [offset for offset, is_record in enumerate(made) if is_record]
    ends_at = dict.fromkeys([0], len(made))
    if limit < count:
        running = command.begin(topic, gate=command.gate, gated="stuck")
        expected = {0: records[limit]}
        eventually(lambda: command.committed(topic) == expected, "it is at the next record")
        running.kill()
        command.gate.touch()
        command.resume(topic)
    else:
        command.drain(topic)
    assert sorted(set(command.record.done())) == [(0, offset, 0) for offset in records]
    assert set(command.record.repeats()) <= {(0, offset, 0) for offset in records[limit:]}
    assert command.committed(topic) == ends_at


# --- the group's offset, moved or gone ---

COUNT, STOPPED = 100, 50


@pytest.fixture
def stopped(command: Command) -> Topic:
    """A topic whose drain has halted in its middle."""
    topic = command.topic(distinct(COUNT))
    command.drain(topic, "-c", "1", "--retries", "0", fail=f"0/{STOPPED}/0", code=5)
    assert command.committed(topic) == {0: STOPPED}
    return topic


@pytest.mark.parametrize("moved", [25, 75])
def test_a_moved_offset_is_refused_with_a_plan_and_followed_without(
    command: Command, stopped: Topic, moved: int
) -> None:
    """``committedOffsetLower`` and ``committedOffsetHigher``."""
    command.cluster.alter_committed(command.group(stopped), stopped.name, {0: moved})
    before = command.record.begun()
    assert "moved it" in command.resume(stopped, code=3).error
    assert command.committed(stopped) == {0: moved}
    assert command.record.begun() == before
    for path in command.folder.iterdir():
        path.unlink()

    command("run", *command.what(stopped), "--yes", *command.options())
    started = {*command.record.begun()[len(before) :]}
    assert started == every_place(distinct(COUNT - moved), first=moved)
    assert command.committed(stopped) == {0: COUNT}


def test_an_offset_that_is_gone_is_asked_for(command: Command, stopped: Topic) -> None:
    """``committedOffsetRemoved`` and ``noOffsetPolicyOnStartup``."""
    admin = AdminClient({"bootstrap.servers": command.bootstrap, "log_level": 0})
    group = command.group(stopped)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    before = command.record.begun()
    for path in command.folder.iterdir():
        path.unlink()
    run = ("run", *command.what(stopped), "--yes", *command.options())
    refused = command(*run, code=3)
    assert "--from" in refused.hint
    assert command.record.begun() == before

    command(*run, "--from", "earliest")
    started = {*command.record.begun()[len(before) :]}
    assert started == every_place(distinct(COUNT))
    assert command.committed(stopped) == {0: COUNT}
