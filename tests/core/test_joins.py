"""Joins: lanes that sub-messages connect are one shard's, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drainer.message import SubMessage
from drainer.model.claims import Components, Joins, ShardMap, key_hash
from drainer.model.order import Order

KEYS = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=3, unique=True)


@given(st.lists(KEYS, max_size=8), st.integers(2, 64))
def test_each_sub_message_is_one_shard_s_and_what_nothing_connects_stays_where_it_is(
    split: list[list[str]], of: int
) -> None:
    components = Components()
    components.add(map(key_hash, keys) for keys in split)
    shard_map = ShardMap(Order.SUB_KEY, {1: components.joins(of)})

    def shard(*keys: str) -> int | None:
        return shard_map.shard_of(SubMessage(keys=keys), of, 1)

    groups: list[set[str]] = []  # found naively
    for keys in split:
        met = [group for group in groups if group & {*keys}]
        groups = [group for group in groups if group not in met]
        groups.append({*keys}.union(*met))
    for group in groups:
        assert shard(*group) == min(map(key_hash, group)) % of
        assert {shard(key) for key in group} == {shard(*group)}
    for key in {*"abcdefghijklmnop"}.difference(*groups):
        assert shard(key) == key_hash(key) % of
    assert sorted(map(len, groups)) == sorted(map(len, components.sets))


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 9_999), max_size=20))
def test_joins_are_read_as_they_are_written(shards: dict[int, int]) -> None:
    joins = Joins(shards)

    assert Joins.parse(str(joins)) == joins
    assert len(str(joins)) == 8 * len(shards)
