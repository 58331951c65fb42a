"""Receipts: all of them add up, and one that was made up does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_partition, changed, progress_at
from core.letters import Sample, as_record
from drainer.errors import Refused
from drainer.letters import receipts
from drainer.letters.receipts import (
    Receipt,
    RedriveProgress,
    finished_in,
    read_receipt,
    redrive_progress,
    taking_in,
)
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model import codec
from drainer.model.claims import ALL, class_selector
from drainer.model.formats import RECEIPT
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Ranges, ranges_of
from drainer.policy.dead_letter import DeadLetter
from drainer.split.splitting import Wait
from view import samples

MINE = Receipt("mine", "dead-id", "one", "host", "/plan", 9, ended=True)
END = 12
offsets = st.sets(st.integers(0, END + 5), max_size=END)


class Log:
    """A topic of one partition that holds these receipts, each at its offset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: dict[int, Any]) -> None:
        monkeypatch.setattr(receipts, "read_letters", lambda *_, since: self.messages())
        self.records = records
        self.topic_id, self.partitions = "dead-id", (0,)
        self.at: int | None = None  # of the group

    def topic(self, name: str) -> Any:
        return self

    def committed(self, group: str, topic: str, partitions: Any) -> dict[int, int | None]:
        return {0: self.at}

    def messages(self) -> list[Message]:
        return [record(each, offset) for offset, each in self.records.items()]

    def read(self, at: int | None = None) -> RedriveProgress:
        self.at, cluster = at, cast(Any, self)
        return redrive_progress(cluster, "dead", "mine")


def record(output: Receipt | bytes, offset: int = 7) -> Message:
    header = codec.encode(output.as_json()) if isinstance(output, Receipt) else output
    return Message(Origin("dead", "dead-id", 0), offset, None, None, 1, [(str(RECEIPT), header)])


def plan(finished: set[int] = frozenset()) -> OffsetPlan:  # type: ignore[assignment]
    ranges = ranges_of(each for each in finished if each < END)
    progress = progress_at(0).merge(progress_at(0, finished=ranges))
    parts = {0: a_partition(0, END, leader_epoch=3)}
    return changed(samples.plan(), partitions=parts, claims={ALL: {0: progress}})


def done(found: OffsetPlan) -> set[int]:
    progress = found.account.claims[ALL][0]
    above = (n for first, end in progress.finished for n in range(first, end))
    return {*range(progress.watermark), *above}


@given(st.lists(offsets, max_size=5), offsets)
def test_a_plan_takes_in_all_that_was_finished_and_nothing_else(
    printed: list[set[int]], own: set[int]
) -> None:
    """Receipts add up in any order, and more than once."""
    found = plan(own)
    for each in (*printed, *reversed(printed)):
        found = taking_in(found, {0: ranges_of(each)})
        found.account.check()
    assert done(found) == {n for n in set().union(own, *printed) if n < END}
    assert found.account.partitions == plan().account.partitions


@pytest.mark.parametrize(("most_bytes", "count"), [(receipts.PREPARED_BYTES, 2), (0, END)])
def test_letters_that_only_name_their_messages_are_read_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, count: int
) -> None:
    monkeypatch.setattr(receipts, "PREPARED_BYTES", most_bytes)
    log = Log(monkeypatch, dict.fromkeys(range(END + 2), MINE))
    claims = {ALL: {0: progress_at(2)}, class_selector("key == 'a'"): {0: progress_at(9)}}
    parts: list[int] = []

    def prepare(messages: Sequence[Message], wait: Wait) -> int:
        parts.append(len(messages[:7]))
        return parts[-1]

    handler = load_handler("count")
    handler.split_letter = lambda message: [SubMessage("a" if message.offset != 5 else "b")]
    handler.prepare = prepare
    found = finished_in(cast(Any, log), changed(plan(), claims=claims), handler)
    assert found == {0: ((0, 5), (6, 9))}
    assert sum(parts) == END + 2 - 2
    assert len(parts) == count


def test_a_receipt_comes_back_as_it_was_written() -> None:
    output = replace(MINE, finished=Ranges(((0, 5), (7, 8))))
    assert read_receipt(record(output)) == output


@given(st.binary(max_size=40) | st.sampled_from([b"{}", b"[" * 9000, b"\xff", b'{"group": 1}']))
def test_a_damaged_receipt_is_none(header: bytes) -> None:
    assert read_receipt(record(header)) is None


@pytest.mark.parametrize(
    "made_up",
    [
        {"end": -1},
        {"finished": "5 3"},
        {"finished": "9" * 5000},
        {"finished": [[1, 2]]},
        {"host": "h" * 5000},
        {"ended": "yes"},
        {"group": None},
    ],
)
def test_a_receipt_that_no_redrive_writes_is_none(made_up: dict[str, Any]) -> None:
    assert read_receipt(record(codec.encode(MINE.as_json() | made_up))) is None


def test_a_letter_whose_message_was_a_receipt_is_a_letter() -> None:
    letter = Sample().letter()
    header = (str(RECEIPT), codec.encode(MINE.as_json()))
    died = as_record(DeadLetter(letter.key, letter.value, (*letter.headers, header)))
    assert read_receipt(died) is None


def test_a_receipt_counts_for_its_group_and_topic_and_for_what_lies_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = replace(MINE, finished=Ranges(((2, 4), (6, 1000))))
    output = {
        7: far,
        8: replace(far, group="other", finished=Ranges(((0, 8),))),
        9: replace(far, topic_id="copied", finished=Ranges(((0, 8),))),
    }
    found = Log(monkeypatch, output).read(1)
    assert found.finished == {0: ((0, 1), (2, 4), (6, 10))}, "those of others count as records"
    assert found.running is None


def test_the_last_redrive_that_began_has_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = replace(MINE, ended=False)
    two = replace(begun, drain_id="two")
    log = Log(monkeypatch, {20: begun, 21: MINE})
    log.read().ensure_ended()
    log.records |= {22: two, 23: MINE}
    with pytest.raises(Refused, match="redrive two of group mine has not ended") as caught:
        log.read().ensure_ended("one")
    assert "on host at /plan" in str(caught.value)
    assert "/plan" not in (caught.value.hint or ""), "any user can have written that path"
    assert "--accept-repeats" in (caught.value.hint or "")
    log.read().ensure_ended("two")
    log.read(two.end).ensure_ended()
    with pytest.raises(Refused, match="two"):
        log.read(two.end - 1).ensure_ended()
    log.records |= {24: replace(two, ended=True)}
    log.read().ensure_ended()


def test_memory_is_bounded_whatever_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "RANGES_MOST", 10)
    ranges = Ranges((2 * n, 2 * n + 1) for n in range(8))
    with pytest.raises(Refused, match="over 5 ranges"):
        Log(monkeypatch, {90: replace(MINE, finished=ranges), 91: MINE, 92: MINE}).read()
    joined = Ranges(((0, 80),))
    again = {n: replace(MINE, finished=joined) for n in range(90, 120)}
    assert Log(monkeypatch, again).read().finished == {0: ((0, 80), (90, 120))}
