"""Rules at work: what is taken out before it enters a lane, and what is counted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import counts, progress_at
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.errors import BadExpression, Halted, UsageError
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.model.claims import key_hash
from drainer.model.rules import LIMIT, RuleAccount, RuleSettings, SkipRule
from drainer.policy.redrive import LeftAlone
from drainer.policy.rules import KeyLimit, RuleFilter, limit_text

from .messages import message_at, take, take_all, written_and_read

END = 1000


def ruled_by(*rules: SkipRule, limit: int | None = None, **more: Any) -> Dispatcher:
    """A dispatcher over one partition with these rules."""
    rule_filter = RuleFilter(RuleSettings(rules, limit))
    return Dispatcher({0: Ledger(0, END)}, rule_filter=rule_filter, **more)


def deliver(dispatcher: Dispatcher, offset: int, *subs: SubMessage | str) -> Message:
    message = message_at(offset)
    dispatcher.deliver(
        message, [SubMessage(s, {"k": s}) if isinstance(s, str) else s for s in subs]
    )
    return message


def key_rule(*keys: str) -> SkipRule:
    return SkipRule("keys", keys=keys)


def skipped(dispatcher: Dispatcher) -> dict[str, int]:
    return dict(dispatcher.rule_filter.skipped_by)


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("app", "app"),
        (b"app", "app"),
        (b"\xff", r"b'\xff'"),
        (("eu", 4), "('eu', 4)"),
        (None, "None"),
    ],
)
def test_a_sub_key_is_named_as_a_person_types_it(key: Hashable, typed: str) -> None:
    dispatcher = ruled_by(key_rule(typed))
    deliver(dispatcher, 0, SubMessage(key), SubMessage("another"))
    assert set(take_all(dispatcher)) == {"0[1]"}


def test_rules_see_the_default_split_too() -> None:
    dispatcher = ruled_by(key_rule("k1"), SkipRule("by value", when="payload.kind == 'x'"))
    origin = Origin("orders", "topic-id", 0)
    values = [b'{"kind": "x"}', b'{"kind": "y"}', b'{"kind": "y"}', b"no json"]
    dispatcher.deliver_whole(
        [Message(origin, n, f"k{n}".encode(), value) for n, value in enumerate(values)]
    )
    assert set(take_all(dispatcher)) == {"2[0]", "3[0]"}
    assert skipped(dispatcher) == {"by value": 1, "keys": 1}
    assert dispatcher.rule_filter.undecided == {"by value": 1}


def test_a_rule_needs_all_sub_keys_and_its_expression_and_no_letter_left_alone() -> None:
    dispatcher = ruled_by(
        SkipRule("both", when="payload.n > 1", keys=("a", "c")),
        SkipRule("the last", when="index == 5"),
        selects=lambda sub: not isinstance(sub, LeftAlone),
    )
    subs = [SubMessage("a", {"n": 2}), SubMessage("a", {"n": 1}), SubMessage("b", {"n": 2})]
    several = [SubMessage(payload={"n": 2}, keys=keys) for keys in (["c", "d"], ["a", "c"])]
    deliver(dispatcher, 0, *subs, *several, LeftAlone(0, "no letter"))
    assert set(take_all(dispatcher)) == {"0[1]", "0[2]", "0[3]"}
    assert dispatcher.counts()[1] == counts(skipped=2, pending=4)


def test_several_sub_keys_may_be_named_by_a_rule_each() -> None:
    """``--skip-key a --skip-key b`` names them so; one with a condition names none for others."""
    conditional = SkipRule("when", when="payload.n > 9", keys=("c",))
    dispatcher = ruled_by(SkipRule.typed_key("a"), SkipRule.typed_key("b"), conditional)
    several = [SubMessage(payload={"n": 1}, keys=keys) for keys in (["b", "a"], ["a", "c"], ["b"])]
    deliver(dispatcher, 0, *several)
    assert set(take_all(dispatcher)) == {"0[1]"}
    assert skipped(dispatcher) == {"skip-key a": 1, "skip-key b": 1}


def test_what_can_not_be_decided_goes_to_the_handler_and_is_counted() -> None:
    dispatcher = ruled_by(
        SkipRule("first", when="payload.gone == 1"), SkipRule("second", when="payload.k == 'b'")
    )
    deliver(dispatcher, 0, "a", "b")
    assert set(take_all(dispatcher)) == {"0[0]"}
    assert dispatcher.rule_filter.undecided == {"first": 2}
    assert "no field 'gone'" in dispatcher.rule_filter.why_undecided["first"]
    assert skipped(dispatcher) == {"second": 1}


def test_rules_of_an_earlier_run_stay_in_the_account() -> None:
    first = ruled_by(key_rule("x"))
    deliver(first, 0, "x")
    second = RuleFilter(RuleSettings((SkipRule("new", keys=("y",)),)), first.ruled())
    assert second.account({}).skipped_by == {"keys": 1}
    none = RuleFilter(RuleSettings(), first.ruled())
    assert none.account({}).skipped_by == {"keys": 1}
    assert not none.acts


def test_a_barrier_is_not_let_through_early_by_what_is_skipped_behind_it() -> None:
    dispatcher = ruled_by(SkipRule("keys", keys=("x",)))
    deliver(dispatcher, 0, "a", "b", Barrier(), "x", "x")
    running = take_all(dispatcher)
    assert set(running) == {"0[0]", "0[1]"}
    dispatcher.finish(running["0[0]"])
    assert dispatcher.take() is None
    dispatcher.finish(running["0[1]"])
    assert isinstance(take(dispatcher), Barrier)


def test_a_barrier_has_no_limit() -> None:
    dispatcher = ruled_by(limit=1)
    for offset in range(3):
        deliver(dispatcher, offset, Barrier())
        dispatcher.finish(take(dispatcher))
    assert skipped(dispatcher) == {}


keys_of_messages = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=25
)


@given(data=st.data(), messages=keys_of_messages, most=st.integers(1, 4))
def test_a_limit_is_exact_over_crashes(
    data: st.DataObject, messages: list[list[str]], most: int
) -> None:
    """Of each sub-key the first N are handled and no other, whatever is written and lost."""
    rules = RuleSettings((), most)
    progress, ruled = progress_at(0), RuleAccount()
    handled: set[tuple[int, int]] = set()
    crashes = 0
    while True:
        dispatcher = Dispatcher(
            {0: Ledger(0, len(messages), progress)}, rule_filter=RuleFilter(rules, ruled)
        )
        for offset in range(progress.watermark, len(messages)):
            message = message_at(offset)
            if dispatcher.wants(message):
                dispatcher.deliver(message, [SubMessage(key) for key in messages[offset]])
            for _ in range(data.draw(st.integers(0, 3))):
                sub = dispatcher.take()
                if sub is not None:
                    handled.add((sub.message.offset, sub.index))
                    dispatcher.finish(sub)
            match data.draw(st.sampled_from(["plan", "journal", "nothing", "nothing", "crash"])):
                case "plan":
                    progress = written_and_read(dispatcher.progress()[0])
                    ruled = dispatcher.ruled()
                    dispatcher.changes()
                    dispatcher.newly_ruled()
                case "journal":
                    if changes := dispatcher.changes():
                        progress = progress.merge(written_and_read(changes[0]))
                        news = dispatcher.newly_ruled()
                        assert news is not None
                        ruled = ruled.merge(RuleAccount.from_json(news.as_json()))
                case "crash" if crashes < 3:
                    crashes += 1
                    break
        else:
            while (sub := dispatcher.take()) is not None:
                handled.add((sub.message.offset, sub.index))
                dispatcher.finish(sub)
            break
    assert dispatcher.complete
    for key in "abc":
        every = [(o, i) for o, keys in enumerate(messages) for i, k in enumerate(keys) if k == key]
        assert {(o, i) for o, i in handled if messages[o][i] == key} == set(every[:most])


def test_several_sub_keys_count_for_each_and_are_held_back_when_all_have_reached_the_limit() -> (
    None
):
    limit = KeyLimit(2)
    assert [limit.passes(["a", "b"]), limit.passes(["a"]), limit.passes(["a"])] == [1, 1, 0]
    assert limit.passes(["a", "b"])
    assert not limit.passes(["b", "a"])
    assert limit.counts == {"'a'": 2, "'b'": 2}
    assert KeyLimit(3, limit.counts).passes(["a"]), "a limit that was raised"
    texts = {limit_text("x" * 10_000 + end) for end in ("a", "b", "\udcff")}
    assert (len(texts), max(map(len, texts)) < 80) == (3, True), "long ones take little room"


def test_a_limit_with_too_many_sub_keys_halts_before_the_next_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drainer.policy.rules.LIMITED_KEYS_MOST", 2)
    first = ruled_by(limit=1)
    deliver(first, 0, "a", "b", "c", "c")
    with pytest.raises(Halted) as raised:
        deliver(first, 1, "a")
    assert "--no-rules" in (raised.value.hint or "")
    assert first.counts()[1] == counts(pending=3, skipped=1)
    assert first.progress()[0].watermark == 0
    assert first.ledgers[0].position == 1

    resumed = Dispatcher(
        {0: Ledger(1, END)}, rule_filter=RuleFilter(RuleSettings(max_per_key=9), first.ruled())
    )
    with pytest.raises(Halted):
        deliver(resumed, 1, "a")
    resumed = Dispatcher({0: Ledger(1, END)}, rule_filter=RuleFilter(RuleSettings(), first.ruled()))
    deliver(resumed, 1, "a")
    assert set(take_all(resumed)) == {"1[0]"}


def test_a_journal_gets_only_what_is_new_of_the_limit() -> None:
    known = RuleAccount(asked_by={"1/2": {1: 9}})
    rules = RuleFilter(RuleSettings(max_per_key=1), known)
    dispatcher = Dispatcher({0: Ledger(0, END)}, rule_filter=rules)
    deliver(dispatcher, 0, "a", "a")
    found = dispatcher.newly_ruled()
    assert found == RuleAccount({LIMIT: 1}, {0: 1}, {"'a'": 1})
    deliver(dispatcher, 1, "a")
    assert dispatcher.newly_ruled() == RuleAccount({LIMIT: 2}, {0: 2})
    assert dispatcher.ruled().asked_by == known.asked_by


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"skips": []}, "the file has an unknown field 'skips'"),
        ({"skip": [{"when": "barrier"}]}, r"field `name` - at `\$.skip\[0]`"),
        ({"skip": [{"name": "a"}]}, "'a' has neither when nor keys"),
        ({"skip": [{"name": "a", "where": "barrier"}]}, "rule 1 has an unknown field 'where'"),
        ({"skip": [{"name": "a", "keys": ["x"]}] * 2}, "two rules have the name 'a'"),
        ({"max_per_key": 0}, "below one"),
    ],
)
def test_a_rules_file_that_makes_no_sense_is_refused_with_why(
    table: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError, match=error) as raised:
        RuleSettings.from_table(table)
    assert raised.value.hint


def test_a_rule_that_can_not_be_understood_is_named() -> None:
    with pytest.raises(BadExpression, match="rule 'mails': syntax error from character 14"):
        RuleFilter(RuleSettings((SkipRule("mails", when="payload.kind = 'x'"),)))
    with pytest.raises(BadExpression, match=r"^--skip: syntax error"):
        RuleFilter(RuleSettings((SkipRule.typed("payload.kind = 'x'"),)))


def test_what_the_task_of_its_claim_has_counted_is_handled_and_not_counted_again() -> None:
    mine, other = "a", "d"
    assert [key_hash(key) % 2 for key in (mine, other)] == [1, 0]
    account = RuleAccount({}, {0: 1}, {"'a'": 2, "'d'": 2}, {"1/2": {0: 4}, "0/2": {1: 9}})
    rule_filter = RuleFilter(RuleSettings(max_per_key=2), account)
    dispatcher = Dispatcher({0: Ledger(0, 9)}, rule_filter=rule_filter)
    for offset in range(5):
        deliver(dispatcher, offset, mine, other, SubMessage(keys=[mine, other]))

    assert set(take_all(dispatcher)) == {"0[0]", "0[1]"}
    assert skipped(dispatcher) == {LIMIT: 4 + 4 + 1}
    assert dispatcher.ruled().asked_by == {"0/2": {1: 9}}
