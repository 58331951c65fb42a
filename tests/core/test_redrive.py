"""Redriving: which dead letters go to the handler again, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.core.bundles import Bundler
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.handler import Handler
from drainer.loader import as_handler
from drainer.message import Barrier, Message, SubMessage
from drainer.policy.dead_letter import LetterFilter
from drainer.policy.redrive import LeftAlone, Redriven, RedriveSettings, selects
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import LIMIT, RuleAccount, RuleSettings

from .letters import DEAD, Sample, as_record, there_and_back

ALL = RedriveSettings()


def split(settings: RedriveSettings, message: Message) -> SubMessage:
    (sub,) = settings.split(message)
    return sub


def redriven(sample: Sample, settings: RedriveSettings = ALL) -> Redriven:
    sub = split(settings, as_record(sample.letter()))
    assert isinstance(sub, Redriven)
    return sub


words = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=3).map(
    tuple
)


@given(
    st.builds(
        RedriveSettings,
        st.builds(LetterFilter, reasons=words, sub_keys=words, errors=words),
        st.integers(0, 99),
    )
)
def test_settings_are_read_as_they_were_written(settings: RedriveSettings) -> None:
    written = orjson.loads(orjson.dumps(settings.as_json()))
    assert RedriveSettings.from_json(written) == settings


@pytest.mark.parametrize("name", ["reasons", "sub_keys", "errors"])
@pytest.mark.parametrize("value", ["failed", {"failed": 1}, [1], None], ids=repr)
def test_a_filter_that_is_no_list_of_words_is_not_read(name: str, value: object) -> None:
    body: dict[str, Any] = orjson.loads(orjson.dumps(ALL.as_json()))
    body["letters"][name] = value
    with pytest.raises(ValueError, match=name):
        RedriveSettings.from_json(body)


def test_the_handler_gets_what_died_with_the_identity_that_it_had() -> None:
    sample = Sample(key=("doc", 17), payload={"a": [1, 2]})
    sub = redriven(sample)
    original = sub.begin()
    assert (original.key, original.payload) == (("doc", 17), {"a": [1, 2]})
    assert original.id == "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1"
    assert str(original.message) == "orders/2/104"
    assert original.message.key == b"customer"


def test_it_waits_in_the_lane_of_its_sub_key() -> None:
    assert redriven(Sample(key="doc-17")).key == "doc-17"
    assert redriven(Sample(sub=SubMessage(keys=["a", "b"]))).keys == ("a", "b")


def test_a_handler_of_batches_gets_what_died_and_folds_nothing() -> None:
    calls: list[list[SubMessage]] = []

    class Batches(Handler):
        max_batch = 5

        def handle_batch(self, subs: Sequence[SubMessage]) -> None:
            calls.append(list(subs))

        def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
            return later

    handler = as_handler(Batches, "batches").redriving(ALL)
    assert handler.split is not None
    assert handler.bundling is not None
    dispatcher = Dispatcher({DEAD.partition: Ledger(0, 2)})
    for offset, key in enumerate(["a", "b"]):
        record = as_record(Sample(key=key, payload=[offset]).letter(), offset)
        dispatcher.deliver(record, list(handler.split(record)))
    bundle = Bundler(dispatcher, handler.bundling).take()
    assert bundle is not None
    handler.handle_bundle(bundle)

    ((first, second),) = calls
    assert {first.key, second.key} == {"a", "b"}
    assert (first.message.topic, first.attempt) == ("orders", 4)
    assert handler.bundling.coalesce is None


def test_a_barrier_has_a_lane_of_its_own_and_is_one_again_for_the_handler() -> None:
    sub = redriven(Sample(sub=Barrier({"drop": "index"})))
    assert not isinstance(sub, Barrier), "what it stood between is gone"
    assert isinstance(sub.begin(), Barrier)
    assert sub.key != redriven(Sample(key=None)).key


def test_a_letter_does_not_go_round_for_ever() -> None:
    settings = RedriveSettings(max_redrives=2)
    letter = Sample().letter()
    for _ in range(2):
        sub = split(settings, as_record(letter))
        assert isinstance(sub, Redriven)
        letter = Sample(sub=sub.begin()).letter(former=sub.letter)
    assert isinstance(split(settings, as_record(letter)), LeftAlone)
    assert isinstance(split(RedriveSettings(max_redrives=0), as_record(letter)), LeftAlone)


def test_what_can_not_be_made_again_is_left_alone() -> None:
    for sample in (Sample(payload=object()), Sample(key=object())):
        assert isinstance(split(ALL, as_record(sample.letter())), LeftAlone)


def test_what_is_no_dead_letter_is_left_alone() -> None:
    assert isinstance(split(ALL, Message(DEAD, 5, b"key", b"value")), LeftAlone)
    assert there_and_back(Sample()).id, "while a letter is read"


def test_a_limit_on_letters_counts_none_of_them_again_after_a_stop() -> None:
    def delivered(account: RuleAccount | None) -> Dispatcher:
        rule_filter = RuleFilter(RuleSettings(limit_per_key=2), account)
        dispatcher = Dispatcher(
            {DEAD.partition: Ledger(0, 3)}, selects=selects, rule_filter=rule_filter
        )
        for offset in range(3):
            message = as_record(Sample().letter(), offset)
            dispatcher.deliver(message, list(ALL.split(message)))
        return dispatcher

    stopped = delivered(None)
    assert stopped.rule_filter.skipped_by == {LIMIT: 1}
    resumed = delivered(stopped.ruled())
    assert resumed.counts()[1].pending == 3, "all below what was asked about: none is asked again"
