from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import progress_at
from drainer.core.other_claims import OtherClaims
from drainer.errors import SplitFailed
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.model.claims import ALL, Shard, ShardMap, ahead_of, key_hash
from drainer.model.order import Order
from drainer.model.progress import Outcome, Partial, Progress, checksum_keys
from drainer.model.ranges import ranges_of
from drainer.model.sub_messages import identify

from .messages import is_finished, message_at, subs_of

PLACES = ShardMap(Order.SUB_KEY)


def identified(*subs: SubMessage, offset: int = 0, partition: int = 0) -> Message:
    message = message_at(offset, partition)
    identify(message, subs)
    return message


# --- places


def test_the_place_of_a_key_is_the_same_in_every_process() -> None:
    places = {
        "naïve": 3574563174, "\ud800": 499426600, b"\xff": 4278190080, None: 2140143823,
        0: 1696784233, -1: 3991854978, 2**80: 2305907972, (): 0, ("a", (1, None)): 2375766970,
    }  # fmt: skip
    assert {key: key_hash(key) for key in places} == places


@pytest.mark.parametrize(
    "keys",
    [
        range(0, 640_000, 64),
        [f"doc-{n}" for n in range(10_000)],
        [("customer", n) for n in range(10_000)],
    ],
    ids=["steps", "text", "tuples"],
)
def test_claims_get_about_as_many_keys_each(keys: Any) -> None:
    of = 64
    shares = Counter(key_hash(key) % of for key in keys)

    assert len(shares) == of
    assert max(shares.values()) < 1.3 * len(keys) / of + 4


# --- claims


@given(of=st.integers(1, 10**9 - 1), data=st.data())
def test_a_claim_is_read_as_it_is_written(of: int, data: st.DataObject) -> None:
    claim = Shard(data.draw(st.integers(0, of - 1)), of)

    assert Shard.parse(str(claim)) == claim


@pytest.mark.parametrize(
    "text", ["", "all", "ALL", "8/8", "0/0", "-1/2", "02/8", "2/8 ", "٢/8", "+/2", "2/8@1"]
)
def test_other_texts_are_no_claims(text: str) -> None:
    with pytest.raises(ValueError, match="shard"):
        Shard.parse(text)


# --- sharing out


def test_a_place_is_that_of_the_lane() -> None:
    sub, several, same = SubMessage("a"), SubMessage(keys=("a", "b")), SubMessage(keys=("a", "a"))
    barrier = Barrier()
    message = identified(sub, several, same, barrier, partition=5)
    message.key = b"key"

    def numbers(order: Order) -> list[int | None]:
        return [ShardMap(order).shard_of(each, 97) for each in message_subs]

    message_subs = (sub, several, same, barrier)
    a = key_hash("a") % 97
    assert numbers(Order.SUB_KEY) == [a, None, a, None]
    assert numbers(Order.KEY) == [key_hash(b"key") % 97] * 3 + [None]
    assert numbers(Order.PARTITION) == [key_hash(5) % 97] * 3 + [None]
    assert len(set(numbers(Order.NONE))) == 4


def test_sub_messages_without_a_key_are_spread_over_the_shards() -> None:
    own, together = Counter[int | None](), Counter[int | None]()
    for offset in range(1_000):
        subs = [SubMessage(), SubMessage(), SubMessage(keys=[None])]
        identify(message_at(offset), subs)
        shards = [ShardMap(Order.SUB_KEY).shard_of(sub, 8) for sub in subs]
        assert shards == [ShardMap(Order.SUB_KEY).shard_of(sub, 8) for sub in subs]
        own.update(shards[:2])
        together[shards[2]] += 1
    assert len(own) == 8
    assert min(own.values()) > 150
    assert len(together) == 1


# --- what other claims have finished

PROGRESS = st.builds(
    lambda watermark, above, parts: progress_at(
        watermark,
        finished=ranges_of(o for o in above if o >= watermark),
        partial={
            o: Partial(3, 0, b) for o, b in parts.items() if o >= watermark and o not in above
        },
    ),
    st.integers(0, 6),
    st.sets(st.integers(0, 9)),
    st.dictionaries(st.integers(0, 9), st.integers(1, 6)),
)


@given(
    claims=st.dictionaries(
        st.sampled_from(["0/1", "0/2", "1/2", "0/3", "1/3", "2/3", "4/5"]),
        PROGRESS,
        max_size=4,
    ),
    split=st.lists(
        st.lists(st.sampled_from("abcdef"), max_size=2, unique=True), min_size=3, max_size=3
    ),
)
def test_a_sub_message_is_finished_if_its_claim_has_finished_it(
    claims: dict[str, Progress], split: list[list[str]]
) -> None:
    """Against a naive reading: a claim has a sub-message when it has all of its sub-keys, and 0/1
    has barriers too."""

    def has(claim: Shard, names: list[str]) -> bool:
        return claim.of == 1 or {key_hash(n) % claim.of for n in names} == {claim.number}

    def subs() -> list[SubMessage]:
        return [SubMessage(keys=keys) if keys else Barrier() for keys in split]

    keys = identify(message_at(0), subs())
    reported = {
        selector: progress_at(
            p.watermark,
            finished=p.finished,
            partial={
                o: replace(part, checksum=checksum_keys(keys)) for o, part in p.partial.items()
            },
        )
        for selector, p in claims.items()
    }
    others = OtherClaims({s: {0: p} for s, p in reported.items()}, ShardMap(Order.SUB_KEY))

    for offset in range(11):
        made, message = subs(), message_at(offset)
        identify(message, made)
        expected = 0
        for selector, progress in reported.items():
            claim = Shard.parse(selector)
            part = progress.partial.get(offset)
            for index, names in enumerate(split):
                if not has(claim, names):
                    continue
                if is_finished(progress, offset) or (part and part.bits >> index & 1):
                    expected |= 1 << index
        assert others.finished(message, made) == expected
        if offset >= others.highest(0):
            assert expected == 0


def test_a_split_that_a_claim_saw_otherwise_is_found_out() -> None:
    subs = subs_of("a", "b")
    message = identified(*subs, offset=3)
    saw = Partial(2, checksum_keys(["a", "c"]), 0b10)
    others = OtherClaims({"0/2": {0: progress_at(0, partial={3: saw})}}, PLACES)

    with pytest.raises(SplitFailed, match="orders/0/3 gave 2 sub-messages"):
        others.finished(message, subs)


@pytest.mark.parametrize(
    ("selector", "progress", "found"),
    [
        pytest.param("0/2", progress_at(3), 0, id="not that far"),
        pytest.param("0/2", progress_at(4), SplitFailed, id="a shard went past its parts"),
        pytest.param(
            "0/2", progress_at(0, partial={3: Partial(2, 1, 1)}), SplitFailed, id="in part"
        ),
        pytest.param("where key == 'a'", progress_at(4), SplitFailed, id="a class went past them"),
        pytest.param("0/1", progress_at(4), 1, id="finished"),
        pytest.param(
            "1/2", progress_at(4, outcomes={Outcome.UNSPLIT: ((3, 4),)}), 1, id="as one unit before"
        ),
    ],
)
def test_a_message_that_does_not_split_any_more_is_found_out(
    selector: str, progress: Progress, found: int | type[Exception]
) -> None:
    others = OtherClaims({selector: {0: progress}}, PLACES)
    unit = Unsplit(b"{", "ValueError", "no", "ValueError: no")
    message = message_at(3)
    unit.take_place(message)

    if isinstance(found, int):
        assert others.finished(message, [unit]) == found
    else:
        with pytest.raises(found, match=r"orders/0/3, which is done in part: ValueError: no"):
            others.finished(message, [unit])


def test_what_ended_as_one_unit_is_finished_whatever_it_splits_into() -> None:
    outcomes = {Outcome.UNSPLIT: ((3, 4),), Outcome.DEAD: ((3, 4),)}
    others = OtherClaims(
        {"0/2": {0: progress_at(0, finished=((3, 4),), outcomes=outcomes)}}, PLACES
    )
    subs = subs_of(*"abcde")

    assert others.finished(identified(*subs, offset=3), subs) == 0b11111
    assert others.outcome(message_at(3)) is Outcome.DEAD


def test_a_claim_is_needed_while_it_has_something_above_the_watermark() -> None:
    others = OtherClaims(
        {
            ALL: {0: progress_at(50), 1: progress_at(50)},
            "0/2": {0: progress_at(3, finished=((5, 8),)), 1: progress_at(0)},
            "1/2": {0: progress_at(3), 1: progress_at(2, partial={4: Partial(2, 0, 1)})},
        },
        PLACES,
    )

    assert (others.highest(0), others.highest(1), others.highest(2)) == (8, 5, 0)
    for marks, needed in (((0, 0), {"0/2", "1/2"}), ((7, 5), {"0/2"}), ((8, 4), {"1/2"})):
        assert set(ahead_of(others.claims, dict(enumerate(map(Progress, marks))))) == needed
    assert not ahead_of(others.claims, {0: Progress(8), 1: Progress(5)})
