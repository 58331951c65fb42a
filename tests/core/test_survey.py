"""A survey of messages agrees with exact counts."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.handler import Handler
from drainer.insight import sketch
from drainer.insight.sketch import Heavy, ratio
from drainer.insight.survey import (
    NO_KEY,
    UNKNOWN,
    Contents,
    Skew,
    Survey,
    operation_kind,
)
from drainer.loader import LoadedHandler
from drainer.message import Barrier, Message, Origin, SubMessage

ORIGIN = Origin("orders", "id", 0)
Window = Sequence[Sequence[Hashable]]  # of messages, each a list of the sub-keys it splits into


def message(value: object, offset: int = 0, key: bytes | None = b"k") -> Message:
    """One that ``ValueHandler`` splits into the value, where that is a list."""
    made = Message(ORIGIN, offset, key, b"v", timestamp=1_000 + offset)
    made.value = value  # type: ignore[assignment]
    made.size = 2
    return made


class ValueHandler(Handler):
    def split(self, message: Message) -> list[SubMessage]:
        given: Any = message.value
        made = [sub if isinstance(sub, SubMessage) else SubMessage(sub) for sub in given]
        if given == "halt":
            raise SystemExit("no such thing")
        return [given] if given == "not a list" else made

    def handle(self, sub: SubMessage) -> None:
        raise AssertionError("nothing is handled")


GIVEN = LoadedHandler("given", ValueHandler)


def surveyed(*windows: Window, skip: Sequence[str] = ()) -> Survey:
    survey = Survey(GIVEN, skip)
    for window in windows:
        survey.take(0, [message(list(keys), n) for n, keys in enumerate(window)], len(window))
        survey.end_window()
    return survey


def skew(*windows: Window, fraction: float = 1.0, skip: Sequence[str] = ()) -> Skew:
    found = surveyed(*windows, skip=skip).skew(fraction)
    assert found is not None
    return found


def contents(*keys: bytes | None) -> Contents:
    survey = Survey(None)
    survey.take(0, [message(b"v", n, key) for n, key in enumerate(keys)], len(keys))
    survey.end_window()
    assert survey.skew(1.0) is None
    return survey.contents(1.0)


@settings(deadline=None)  # the first one imports numpy
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=60), st.integers(1, 7))
def test_all_that_was_read_is_counted_exactly_by_one_survey_or_by_many(
    messages: list[list[int]], windows: int
) -> None:
    parts = [messages[n::windows] for n in range(windows)]
    found = skew(*parts)
    merged = Survey(None)
    for part in parts:
        merged.merge(pickle.loads(pickle.dumps(surveyed(part))))

    exact = Counter(str(key) for keys in messages for key in keys)
    total = exact.total()
    assert (found.messages, found.sub_messages) == (len(messages), total)
    assert found.empty == sum(not keys for keys in messages)
    assert found.sub_keys == len(exact)
    assert found.fan_out.max == max(map(len, messages), default=0)
    assert [share.count for share in found.hottest] == [n for _, n in exact.most_common(10)]
    for share in found.hottest:
        assert share.count == exact[share.name]
        assert share.low == share.share == share.high == share.count / total
    if messages:
        assert found.fan_out.mean == pytest.approx(total / len(messages))
    assert merged.skew(1.0) == found
    assert merged.contents(1.0) == surveyed(*parts).contents(1.0)
    assert (merged.offsets, merged.density(0)) == (len(messages), 1.0)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 0.6))
def test_of_more_sub_keys_than_it_remembers_the_hot_one_is_found_within_the_bounds(
    seed: int, hot: float
) -> None:
    chance = random.Random(seed)
    messages = [
        ["hot" if chance.random() < hot else chance.randrange(10**9) for _ in range(20)]
        for _ in range(200)
    ]
    exact = Counter(repr(key) for keys in messages for key in keys)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sketch, "TALLIED", 500)
        patched.setattr(sketch, "CAPACITY_LOG2", 9)
        one, merged = surveyed(messages), surveyed(messages[:90])
        merged.merge(surveyed(messages[90:]))

    share = exact["'hot'"] / exact.total()
    for survey in (one, merged):
        found = survey.skew(1.0)
        assert found is not None
        assert found.hottest[0].name == "'hot'"
        assert found.hottest[0].low <= share <= found.hottest[0].high
        assert found.hottest[0].high - found.hottest[0].low < 0.01
        assert found.sub_keys == pytest.approx(len(exact), rel=0.04)


def test_memory_does_not_grow_with_the_count_of_sub_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "TALLIED", 1000)
    monkeypatch.setattr(sketch, "CAPACITY_LOG2", 8)
    heavy = Heavy(str)
    heavy.add(range(1000))
    tracemalloc.start()
    for n in range(100):
        heavy.add(range(n * 1000, (n + 1) * 1000))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2_000_000, "100,000 of them would take 14 MB"
    heavy.end_cluster()
    assert heavy.distinct == pytest.approx(100_000, rel=0.04)


def test_the_bound_comes_from_how_windows_differ_and_not_from_how_many_messages_they_hold() -> None:
    alike = skew(*[[["hot", n, n + 1, n + 2]] * 100 for n in range(0, 50, 5)], fraction=0.01)
    apart = skew(
        *[[["hot"] * 4 if n % 20 == 0 else [n, n, n, n]] * 100 for n in range(0, 50, 5)],
        fraction=0.01,
    )

    assert alike.hottest[0].high - alike.hottest[0].low < 0.001
    # In three windows of ten it is everything, in the others nothing.
    assert apart.hottest[0].share == pytest.approx(0.3)
    assert apart.hottest[0].low < 0.05
    assert apart.hottest[0].high > 0.55


def test_what_a_window_holds_is_compared_whole_however_often_it_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sketch, "TALLIED", 2)
    windows = [[["hot", n, n + 1]] * (20 + n) for n in range(0, 30, 3)]

    found = skew(*windows, fraction=0.1)

    assert found.hottest[0].low == pytest.approx(1 / 3)
    assert found.hottest[0].high == pytest.approx(1 / 3)


def test_the_interval_has_the_truth_as_often_as_it_claims() -> None:
    chance = random.Random(7)
    within = 0
    for _ in range(300):
        # A backlog in which the share of the hot key drifts, and ten windows of it.
        shares = [0.2 + 0.4 * n / 10 for n in range(10)]
        parts, wholes = [], []
        for share in shares:
            local = min(1.0, max(0.0, chance.gauss(share, 0.05)))
            parts.append(sum(chance.random() < local for _ in range(50)))
            wholes.append(50)
        found, error = ratio(parts, wholes, 0.0)
        assert error is not None
        within += abs(found - sum(shares) / 10) <= error
    assert within >= 0.94 * 300


def test_several_sub_keys_barriers_and_kinds_are_counted() -> None:
    class SetEmail(SubMessage):
        __slots__ = ()

    named = SubMessage("a", {"type": "set_name"})
    found = skew([[SubMessage(keys=["a", "b"]), named, SetEmail("a"), Barrier(), 17, "17"]])

    assert (found.barriers, found.sub_messages) == (1, 6)
    assert {share.name: share.count for share in found.hottest} == {
        "'a'": 3, "'b'": 1, "17": 1, "'17'": 1,
    }  # fmt: skip
    assert found.hottest[0].share == 0.5
    kinds = {share.name: share.count for share in found.kinds}
    assert kinds == {"no kind": 3, "set_name": 1, "SetEmail": 1, "barrier": 1}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"kind": None, "kind2": "x", "type": "set_name"}, "set_name"),
        ({"kind": "x" * 200}, UNKNOWN),
        (b'{"type": "created", "id": 1}', "created"),
        ('{"event": "created"}', "created"),
        (b"{broken", UNKNOWN),
        (b'[{"type": "created"}]', UNKNOWN),
        (b"\x00\x01", UNKNOWN),
        (3, UNKNOWN),
    ],
)
def test_a_payload_has_its_kind(payload: object, expected: str) -> None:
    assert operation_kind(SubMessage("a", payload)) == expected


def test_what_rules_would_leave_out_is_counted_by_rule_and_so_is_what_they_can_t_decide() -> None:
    skip = hot, big = "sub_key == 'hot'", "payload.size > 3"
    messages = [[["hot", n, n]] for n in range(10)]
    merged = surveyed(*messages[:5], skip=skip)
    merged.merge(pickle.loads(pickle.dumps(surveyed(*messages[5:], skip=skip))))

    found = merged.skew(1.0)

    assert found is not None
    (rule,) = found.rules
    assert (rule.name, rule.count) == (hot, 10)
    assert rule.share == pytest.approx(1 / 3)
    assert merged.rule_status.undecided == {big: 20}
    assert set(merged.rule_status.why) == {big}


def test_what_a_drain_would_halt_at_is_counted_apart_and_the_first_of_it_is_kept() -> None:
    merged = Survey(None)
    for offset, value in ((4, "not a list"), (3, [["no", "hash"], "a"]), (5, "halt")):
        survey = Survey(GIVEN)
        survey.take(0, [message(value, offset), message([1], 9)], 2)
        survey.end_window()
        merged.merge(survey)

    assert merged.failures is not None
    assert merged.failures.messages == 3
    assert merged.failures.hint.endswith("a drain would stop at these 3 messages.")
    assert "orders/0/3" in merged.failures.first
    found = merged.skew(1.0)
    assert found is not None
    assert (found.messages, found.sub_messages) == (3, 3)


def test_sizes_and_tombstones_of_what_was_read() -> None:
    survey = Survey(None)
    survey.take(0, [Message(ORIGIN, n, b"a", b"x" * n, 0) for n in range(100)], 100)
    survey.take(0, [Message(ORIGIN, 100, None, None, None)], 1)
    survey.end_window()

    found = survey.contents(1.0)

    assert (found.messages, found.tombstones) == (101, 1)
    assert found.bytes == sum(range(100)) + 100
    assert (found.sizes.p50, found.sizes.p99, found.sizes.max) == (50, 99, 100)
    assert survey.mean_bytes(0) == survey.mean_bytes(7) == found.bytes / 101


def test_message_keys_differ_by_their_text_and_what_came_equally_often_goes_by_name() -> None:
    found = contents(b"", None, b"a", b"", b"\xff", b"k" * 300)
    assert found.message_keys == 5
    shown = {share.name: share.count for share in found.hottest_keys}
    assert shown == {"": 2, NO_KEY: 1, "a": 1, "\\xff": 1, max(shown, key=len): 1}

    keys = [f"k{n}".encode() for n in reversed(range(30))]
    names = [share.name for share in contents(*keys).hottest_keys]
    assert names == sorted(key.decode() for key in keys)[:10]
