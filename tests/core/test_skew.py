"""What is told of the spread of work holds against exact counts, within the bounds told with it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.errors import SplitFailed
from drainer.insight.statistics import sketch
from drainer.insight.statistics.contents import NO_KEY, ContentsMeter
from drainer.insight.statistics.sketch import Heavy, ratio
from drainer.insight.statistics.skew import Skew, SkewMeter
from drainer.message import Barrier, Message, Origin, SubMessage

ORIGIN = Origin("orders", "id", 0)


def message(offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v") -> Message:
    return Message(ORIGIN, offset, key, value, timestamp=1_000 + offset)


def metered(*windows: Sequence[Sequence[Hashable]], fraction: float = 1.0) -> Skew:
    """Windows of messages, each a list of the sub-keys it splits into."""
    meter = SkewMeter()
    for window in windows:
        for keys in window:
            meter.take(message(), [SubMessage(key) for key in keys])
        meter.end_cluster()
    return meter.skew(fraction)


@settings(deadline=None)  # the first one imports numpy
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=60), st.integers(1, 7))
def test_all_that_was_read_is_counted_exactly(messages: list[list[int]], windows: int) -> None:
    found = metered(*[messages[n::windows] for n in range(windows)])

    exact = Counter(str(key) for keys in messages for key in keys)
    total = exact.total()
    assert (found.messages, found.sub_messages) == (len(messages), total)
    assert found.empty == sum(not keys for keys in messages)
    assert found.sub_keys.estimate == len(exact)
    assert found.fan_out.most == max(map(len, messages), default=0)
    assert [share.count for share in found.hottest] == [n for _, n in exact.most_common(10)]
    for share in found.hottest:
        assert share.count == exact[share.name]
        assert share.low == share.share == share.high == share.count / total
    if messages:
        assert found.fan_out.mean.value == pytest.approx(total / len(messages))
        assert found.fan_out.mean.error == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.02, 0.6))
def test_of_more_sub_keys_than_it_remembers_the_hot_one_is_found_within_the_bounds(
    seed: int, hot: float
) -> None:
    chance = random.Random(seed)
    exact = Counter[str]()
    meter = SkewMeter()
    for _ in range(1500):
        keys = ["hot" if chance.random() < hot else chance.randrange(10**9) for _ in range(40)]
        exact.update(map(repr, keys))
        meter.take(message(), [SubMessage(key) for key in keys])
    meter.end_cluster()

    found = meter.skew(1.0)

    share = exact["'hot'"] / exact.total()
    assert found.hottest[0].name == "'hot'"
    assert found.hottest[0].low <= share <= found.hottest[0].high
    assert found.hottest[0].high - found.hottest[0].low < 0.001
    assert found.sub_keys.estimate == pytest.approx(len(exact), rel=0.04)


def test_memory_does_not_grow_with_the_count_of_sub_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "TALLIED", 1000)
    monkeypatch.setattr(sketch, "CAPACITY_LOG2", 8)
    heavy = Heavy(str)
    for n in range(100):
        heavy.add(range(n * 1000, (n + 1) * 1000))
        assert len(heavy._tally) <= 2000
        assert len(heavy._cluster) <= sketch.REMEMBERED
        assert heavy._items.num_active_items <= 256
    heavy.end_cluster()
    assert heavy.distinct.estimate == pytest.approx(100_000, rel=0.04)


def test_what_a_window_holds_is_compared_whole_however_often_it_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sketch, "TALLIED", 2)
    windows = [[["hot", n, n + 1]] * (20 + n) for n in range(0, 30, 3)]

    found = metered(*windows, fraction=0.1)

    assert found.hottest[0].low == pytest.approx(1 / 3)
    assert found.hottest[0].high == pytest.approx(1 / 3)


def test_the_bound_comes_from_how_windows_differ_and_not_from_how_many_messages_they_hold() -> None:
    alike = metered(*[[["hot", n, n + 1, n + 2]] * 100 for n in range(0, 50, 5)], fraction=0.01)
    apart = metered(
        *[[["hot"] * 4 if n % 20 == 0 else [n, n, n, n]] * 100 for n in range(0, 50, 5)],
        fraction=0.01,
    )

    assert alike.hottest[0].high - alike.hottest[0].low < 0.001
    # In three windows of ten it is everything, in the others nothing.
    assert apart.hottest[0].share == pytest.approx(0.3)
    assert apart.hottest[0].low < 0.05
    assert apart.hottest[0].high > 0.55


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(7)
    held = 0
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
        held += abs(found - sum(shares) / 10) <= error
    assert held >= 0.94 * 300


def test_several_sub_keys_barriers_and_kinds_are_told() -> None:
    class SetEmail(SubMessage):
        __slots__ = ()

    meter = SkewMeter()
    meter.take(
        message(),
        [
            SubMessage(keys=["a", "b"]),
            SubMessage("a", {"type": "set_name"}),
            SetEmail("a"),
            Barrier(),
            SubMessage(17),
            SubMessage("17"),
        ],
    )
    meter.end_cluster()
    found = meter.skew(1.0)

    assert found.barriers == 1
    assert found.sub_messages == 6
    assert {share.name: share.count for share in found.hottest} == {
        "'a'": 3, "'b'": 1, "17": 1, "'17'": 1,
    }  # fmt: skip
    assert found.hottest[0].share == 0.5
    kinds = {share.name: share.count for share in found.kinds}
    assert kinds == {"no kind": 3, "set_name": 1, "SetEmail": 1, "barrier": 1}


def test_what_rules_would_leave_out_is_told_by_rule() -> None:
    meter = SkewMeter(lambda sub: "no-mail" if sub.payload == "mail" else None)
    for n in range(10):
        meter.take(message(), [SubMessage(n, "mail"), SubMessage(n, "name"), SubMessage(n, "name")])
    meter.end_cluster()

    (rule,) = meter.skew(1.0).rules

    assert (rule.name, rule.count) == ("no-mail", 10)
    assert rule.share == pytest.approx(1 / 3)


def test_what_a_drain_would_halt_at_is_refused_and_not_counted() -> None:
    meter = SkewMeter()
    with pytest.raises(SplitFailed, match="orders/0/3"):
        meter.take(message(3), [SubMessage("a"), SubMessage(["no", "hash"])])  # type: ignore[arg-type]
    with pytest.raises(SplitFailed, match="instead of SubMessage"):
        meter.take(message(4), ["no sub-message"])  # type: ignore[list-item]
    meter.end_cluster()
    found = meter.skew(1.0)

    assert (found.messages, found.sub_messages, found.hottest) == (0, 0, ())


def test_sizes_ages_and_message_keys_of_what_was_read() -> None:
    meter = ContentsMeter()
    meter.take([message(n, b"a", b"x" * n) for n in range(100)])
    meter.take([message(100, None, None), message(101, b"\xff", b"")])
    meter.end_cluster()

    found = meter.contents(1.0, now_ms=11_101)

    assert found.messages == 102
    assert found.bytes == sum(range(100)) + 100 + 1
    assert found.tombstones == 1
    assert found.sizes is not None
    assert found.sizes.most == 100
    assert sum(part.share for part in found.sizes.bins) == pytest.approx(1)
    assert found.sizes.bins[-1].low <= 100 < found.sizes.bins[-1].high
    assert found.ages is not None
    assert found.ages.most == pytest.approx(10.101)
    assert next((s.name, s.count) for s in found.hottest_keys) == ("a", 100)
    assert {s.name for s in found.hottest_keys} == {"a", NO_KEY, "\\xff"}
