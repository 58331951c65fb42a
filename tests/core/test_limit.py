"""The limit per sub-key: never one too few, and how many too many when memory is short."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.core.claims import place_of
from drainer.policy.rules import limit as module
from drainer.policy.rules.limit import KeyLimit, SharedLimit, limit_text

keys = st.lists(st.integers(0, 40).map(lambda n: f"k{n * n // 40}"), max_size=300)


@given(keys=keys, most=st.integers(1, 5))
def test_with_a_place_for_each_it_is_exact(keys: list[str], most: int) -> None:
    limit = KeyLimit(most, places=100)
    before: Counter[str] = Counter()
    for key in keys:
        assert limit.passes([key]) == (before[key] < most)
        before[key] += 1


@given(keys=keys, most=st.integers(1, 8), places=st.integers(2, 20))
def test_with_fewer_places_nothing_within_the_limit_is_held_back(
    keys: list[str], most: int, places: int
) -> None:
    limit = KeyLimit(most, places=places)
    passed: Counter[str] = Counter()
    for key in keys:
        if limit.passes([key]):
            passed[key] += 1
        else:
            assert passed[key] >= most
        assert len(limit._counts) <= places


def test_what_is_too_many_stays_below_what_is_promised() -> None:
    places, most = 100, 50
    limit = KeyLimit(most, places=places)
    passed = hot = 0
    for n in range(20_000):  # a stream of new sub-keys, and one that comes again and again
        passed += limit.passes([f"new-{n}"])
        if not n % 4 and limit.passes(["hot"]):
            hot += 1
            passed += 1
    assert most <= hot <= most + 4 * passed // places


def test_those_that_have_reached_the_limit_keep_their_place() -> None:
    limit = KeyLimit(3, places=10)
    for _ in range(3):
        assert limit.passes(["hot"])
    for n in range(1000):
        limit.passes([f"new-{n}"])
        assert not limit.passes(["hot"])


def test_when_they_take_half_of_the_places_new_ones_are_let_through() -> None:
    limit = KeyLimit(1, places=10)
    assert all(limit.passes([f"k{n}"]) for n in range(10))
    assert all(limit.passes(["late"]) for _ in range(5))
    assert not limit.passes(["k9"])


def test_several_sub_keys_are_held_back_when_all_of_them_are() -> None:
    limit = KeyLimit(1)
    assert limit.passes(["a"])
    assert limit.passes(["a", "b"])
    assert not limit.passes(["a", "b"])
    assert not limit.passes(["b"])
    assert limit.passes(["b", "c"])
    assert limit.passes([])


def test_what_one_tells_another_goes_on_from() -> None:
    limit = KeyLimit(100)
    for _ in range(70):
        limit.passes(["warm"])
    for _ in range(10):
        limit.passes(["cool"])
    assert limit.counts() == {"'warm'": 70}
    later = KeyLimit(100, limit.counts())
    assert sum(later.passes(["warm"]) for _ in range(100)) == 30
    assert sum(later.passes(["cool"]) for _ in range(200)) == 100
    assert later.news() == {"'warm'": 100, "'cool'": 100}
    assert later.news() == {}


def test_a_limit_that_was_raised_lets_more_through() -> None:
    limit = KeyLimit(2)
    assert [limit.passes(["a"]) for _ in range(3)] == [True, True, False]
    raised = KeyLimit(3, limit.counts())
    assert [raised.passes(["a"]) for _ in range(3)] == [True, False, False]


@given(keys=keys, most=st.integers(1, 5), cut=st.integers(0, 300))
def test_who_goes_on_from_all_counts_goes_on_exactly(keys: list[str], most: int, cut: int) -> None:
    whole, first = KeyLimit(most), KeyLimit(most)
    expected = [whole.passes([key]) for key in keys]
    found = [first.passes([key]) for key in keys[:cut]]
    later = KeyLimit(most, first.counts(), counted=first.all_counts()[0])
    found += [later.passes([key]) for key in keys[cut:]]
    assert found == expected
    assert later.counts() == whole.counts()


@given(keys=keys, most=st.integers(1, 5), of=st.integers(2, 4))
def test_the_limits_of_all_claims_count_as_each_of_them_and_as_one(
    keys: list[str], most: int, of: int
) -> None:
    whole = KeyLimit(most)
    shares = [KeyLimit(most) for _ in range(of)]
    both = SharedLimit([KeyLimit(most) for _ in range(of)])
    for key in keys:
        passes = whole.passes([key])
        assert shares[place_of(key) % of].passes([key]) == passes
        assert both.passes([key]) == passes
    assert both.all_counts() == [share.all_counts()[0] for share in shares]
    assert both.counts() == whole.counts()
    assert both.news() == whole.news()
    assert both.news() == {}


def test_several_sub_keys_of_several_claims_are_held_back_when_all_of_them_are() -> None:
    limit = SharedLimit([KeyLimit(1), KeyLimit(1)])
    a, b, c = "ace"
    assert len({place_of(key) % 2 for key in (a, b, c)}) == 2
    assert limit.passes([a])
    assert limit.passes([a, b])
    assert not limit.passes([a, b])
    assert limit.passes([b, c])
    assert limit.passes([])


def test_what_the_journal_is_told_is_what_has_risen() -> None:
    limit = KeyLimit(100, {"'known'": 70})
    for key in ["known", "known", *["cool"] * 63]:
        limit.passes([key])
    assert limit.news() == {"'known'": 72}
    limit.passes(["cool"])
    assert limit.news() == {"'cool'": 64}
    assert limit.news() == {}


def test_the_plan_is_told_of_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MOST", 5)
    limit, other = KeyLimit(1), KeyLimit(1)
    for n in range(20):
        limit.passes([n])
        other.passes([-n])
    assert len(SharedLimit([limit, other]).counts()) == 5
    assert list(limit.counts()) == ["0", "1", "2", "3", "4"]
    assert limit.news() == dict.fromkeys(["0", "1", "2", "3", "4"], 1)


def test_long_sub_keys_are_told_apart_in_little_room() -> None:
    texts = {limit_text("x" * 10_000 + end) for end in ("a", "b", "\udcff")}
    assert len(texts) == 3
    assert max(map(len, texts)) < 80
    assert limit_text("short") == "'short'"
