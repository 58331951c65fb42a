"""Rules at work: what is taken out before it enters a lane, and what is counted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from builders import counts
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.policy.redrive import LeftAlone
from drainer.policy.rules import RuleFilter

from .messages import deliver, take_all

END = 1000


def ruled_by(*expressions: str, **more: Any) -> Dispatcher:
    """A dispatcher over one partition with these rules."""
    return Dispatcher({0: Ledger(0, END)}, rule_filter=RuleFilter(expressions, **more))


def skipped(dispatcher: Dispatcher) -> dict[str, int]:
    return dict(dispatcher.rule_filter.skipped_by)


@pytest.mark.parametrize("is_it", ["sub_key == {}", "sub_key in [{}]", "{} in sub_keys"])
@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("app", "'app'"),
        (b"app", "'app'"),
        (b"\xff", r"""'b\'\\xff\''"""),
        (b'{"id": 7}', """'{"id": 7}'"""),
        (("eu", 4), "\"('eu', 4)\""),
        (17, "'17'"),
        (None, "'None'"),
    ],
)
def test_a_sub_key_of_any_kind_is_named_as_it_is_printed(
    key: Hashable, typed: str, is_it: str
) -> None:
    dispatcher = ruled_by(is_it.format(typed))
    deliver(dispatcher, 0, SubMessage(key), SubMessage("another"), SubMessage(keys=[key]))
    assert set(take_all(dispatcher)) == {"0[1]"}


def test_rules_see_the_default_split_too() -> None:
    rules = by_key, by_value = "sub_key == 'k1'", "payload.kind == 'x'"
    dispatcher = ruled_by(*rules)
    origin = Origin("orders", "topic-id", 0)
    values = [b'{"kind": "x"}', b'{"kind": "y"}', b'{"kind": "y"}', b"no json"]
    dispatcher.deliver_whole(
        [Message(origin, n, f"k{n}".encode(), value) for n, value in enumerate(values)]
    )
    assert set(take_all(dispatcher)) == {"2[0]", "3[0]"}
    assert skipped(dispatcher) == {by_value: 1, by_key: 1}
    assert dispatcher.rule_filter.undecided == {by_value: 1}
    assert "no field 'kind'" in dispatcher.rule_filter.why_undecided[by_value]


def test_a_rule_takes_out_what_it_is_true_of_but_no_letter_left_alone() -> None:
    dispatcher = ruled_by(
        "sub_key == 'a' and payload.n > 1",
        "index == 3",
        selects=lambda sub: not isinstance(sub, LeftAlone),
    )
    subs = [SubMessage("a", {"n": 2}), SubMessage("a", {"n": 1}), SubMessage("b", {"n": 2})]
    deliver(dispatcher, 0, *subs, LeftAlone(0, "no letter"))
    assert set(take_all(dispatcher)) == {"0[1]", "0[2]"}
    assert dispatcher.counts()[1] == counts(skipped=1, pending=3)


def test_of_several_sub_keys_a_rule_that_names_one_can_not_decide() -> None:
    of_one, of_all = "sub_key == 'a'", "$all([each in ['a', 'b'] for each in sub_keys])"
    several = ["b", "a"], ["a", "c"], ["b"]
    first = ruled_by(of_one)
    deliver(first, 0, *(SubMessage(keys=keys) for keys in several))
    assert skipped(first) == {}
    assert first.rule_filter.undecided == {of_one: 2}
    second = ruled_by(of_all)
    deliver(second, 0, *(SubMessage(keys=keys) for keys in several), Barrier())
    assert set(take_all(second)) == {"0[1]"}
    assert skipped(second) == {of_all: 2}
