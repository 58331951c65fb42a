"""A survey of messages agrees with exact counts, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.handler import Handler
from drainer.insight import survey
from drainer.insight.survey import Contents, Frequent, Skew, Survey
from drainer.insight.workload import NO_KEY
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, Origin, SubMessage

ORIGIN = Origin("orders", "id", 0)


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


def surveyed(messages: Sequence[Sequence[Hashable]], skip: Sequence[str] = ()) -> Survey:
    """A survey of messages, each a list of the sub-keys that it splits into."""
    found = Survey(GIVEN, skip)
    found.take(0, [message(list(keys), n) for n, keys in enumerate(messages)], len(messages))
    return found


def skew(messages: Sequence[Sequence[Hashable]]) -> Skew:
    found = surveyed(messages).skew
    assert found is not None
    return found


def contents(*keys: bytes | None) -> Contents:
    found = Survey(None)
    found.take(0, [message(b"v", n, key) for n, key in enumerate(keys)], len(keys))
    assert found.skew is None
    return found.contents


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=60))
def test_all_that_was_read_is_counted_exactly(messages: list[list[int]]) -> None:
    found = skew(messages)
    exact = Counter(str(key) for keys in messages for key in keys)
    total = exact.total()
    assert (found.messages, found.sub_messages) == (len(messages), total)
    assert found.empty == sum(not keys for keys in messages)
    assert found.fan_out.max == max(map(len, messages), default=0)
    assert [share.count for share in found.hottest] == [n for _, n in exact.most_common(10)]
    for share in found.hottest:
        assert (share.count, share.share) == (exact[share.name], exact[share.name] / total)
    if messages:
        assert found.fan_out.mean == pytest.approx(total / len(messages))


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.floats(0.05, 0.6))
def test_of_more_sub_keys_than_it_counts_the_hot_one_is_found_in_bounded_memory(
    seed: int, hot: float
) -> None:
    chance, exact, counted = random.Random(seed), Counter[str](), Frequent()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(survey, "COUNTED", 100)
        tracemalloc.start()
        for _ in range(200):
            keys = [
                "hot" if chance.random() < hot else str(chance.randrange(10**9)) for _ in range(50)
            ]
            counted.add(keys)
            exact["hot"] += keys.count("hot")
        taken_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    (found,) = counted.most(1, 10_000)
    assert found.name == "hot"
    assert exact["hot"] - 100 <= found.count <= exact["hot"], "one in COUNTED at most is missing"
    assert taken_bytes < 100_000, "10,000 of them would take a MB"


def test_several_sub_keys_and_barriers_are_counted() -> None:
    found = skew([[SubMessage(keys=["a", "b"]), "a", SubMessage("a"), Barrier(), 17, "17"]])

    assert (found.barriers, found.sub_messages) == (1, 6)
    assert {share.name: share.count for share in found.hottest} == {
        "'a'": 3, "'b'": 1, "17": 1, "'17'": 1,
    }  # fmt: skip
    assert found.hottest[0].share == 0.5


def test_what_rules_would_leave_out_is_counted_by_rule_and_so_is_what_they_can_t_decide() -> None:
    skip = hot, big = "sub_key == 'hot'", "payload.size > 3"
    found = surveyed([["hot", n, n] for n in range(10)], skip)

    assert found.skew is not None
    (rule,) = found.skew.rules
    assert (rule.name, rule.count) == (hot, 10)
    assert rule.share == pytest.approx(1 / 3)
    assert found.rule_status.undecided == {big: 20}
    assert set(found.rule_status.why) == {big}


def test_what_a_drain_would_halt_at_is_counted_apart_and_the_first_of_it_is_kept() -> None:
    found = Survey(GIVEN)
    values = ([["no", "hash"], "a"], [1], "not a list", "halt")
    found.take(0, [message(value, offset) for offset, value in enumerate(values, 3)], 4)

    assert found.failures is not None
    assert found.failures.messages == 3
    assert found.failures.hint.endswith("a drain would stop at these 3 messages.")
    assert "orders/0/3" in found.failures.first
    assert found.skew is not None
    assert (found.skew.messages, found.skew.sub_messages) == (1, 1)


def test_sizes_and_tombstones_of_what_was_read() -> None:
    survey = Survey(None)
    survey.take(0, [Message(ORIGIN, n, b"a", b"x" * n, 0) for n in range(100)], 100)
    survey.take(0, [Message(ORIGIN, 100, None, None, None)], 1)

    found = survey.contents

    assert (found.messages, found.tombstones) == (101, 1)
    assert found.bytes == sum(range(100)) + 100
    assert (found.sizes.p50, found.sizes.p99, found.sizes.max) == (50, 99, 100)
    assert survey.mean_bytes(0) == survey.mean_bytes(7) == found.bytes / 101


def test_message_keys_differ_by_their_text_and_what_came_equally_often_goes_by_name() -> None:
    found = contents(b"", None, b"a", b"", b"\xff", b"k" * 300)
    shown = {share.name: share.count for share in found.hottest_keys}
    assert shown == {"": 2, NO_KEY: 1, "a": 1, "\\xff": 1, max(shown, key=len): 1}

    keys = [f"k{n}".encode() for n in reversed(range(30))]
    names = [share.name for share in contents(*keys).hottest_keys]
    assert names == sorted(key.decode() for key in keys)[:10]
