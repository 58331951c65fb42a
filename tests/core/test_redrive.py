"""Redriving: which dead letters go to the handler again, and as what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import orjson
import pytest
from hypothesis import given

from builders import counts, progress_at
from drainer.core.batches import Batcher
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.other_claims import OtherClaims
from drainer.errors import SplitFailed
from drainer.handler import Fatal, Handler
from drainer.kafka.settings import ClientSettings
from drainer.letters.redriving import redriving
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.model.claims import ShardMap
from drainer.model.order import Order
from drainer.model.progress import Outcome, Partial
from drainer.model.sub_messages import identify, identify_or_reject
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.policy.exact_json import Encoding
from drainer.policy.redrive import NOT_MATCHED, LeftAlone, Redriven, selects, split_letter
from drainer.policy.rules import RuleFilter
from drainer.split.splitting import split_or_reject

from .letters import DEAD, Sample, as_record, mutated_letters, there_and_back

ALL = RedriveSettings()
CLIENT = ClientSettings("nowhere:9092")


def split(settings: RedriveSettings, message: Message) -> SubMessage:
    (sub,) = split_letter(settings, message)
    return sub


def redriven(sample: Sample, settings: RedriveSettings = ALL) -> Redriven:
    sub = split(settings, as_record(sample.letter()))
    assert isinstance(sub, Redriven)
    return sub


def test_settings_are_read_as_they_were_written_and_a_filter_is_lists_of_words() -> None:
    settings = RedriveSettings(LetterFilter(("failed",), ("a", "b"), ("naïve",)), 7)
    body: dict[str, Any] = orjson.loads(orjson.dumps(settings.as_json()))
    assert RedriveSettings.from_json(body) == settings
    for wrong in ("failed", {"failed": 1}, [1], None):
        with pytest.raises(ValueError, match="sub_keys"):
            RedriveSettings.from_json(body | {"letters": body["letters"] | {"sub_keys": wrong}})


def test_the_handler_gets_what_died_with_the_identity_that_it_had() -> None:
    sample = Sample(key=("doc", 17), payload={"a": [1, 2]})
    sub = redriven(sample)
    assert sub.key == ("doc", 17), "it waits in the lane of its sub-key"
    assert redriven(Sample(sub=SubMessage(keys=["a", "b"]))).keys == ("a", "b")
    original = sub.begin()
    assert (original.key, original.payload) == (("doc", 17), {"a": [1, 2]})
    assert original.id == "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1"
    assert str(original.message) == "orders/2/104"
    assert original.message.key == b"customer"


def test_a_handler_of_batches_gets_what_died_and_folds_nothing() -> None:
    calls: list[list[SubMessage]] = []

    class Batches(Handler):
        max_batch = 5

        def handle_batch(self, subs: Sequence[SubMessage]) -> None:
            calls.append(list(subs))

        def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
            return later

    handler = redriving(LoadedHandler("batches", Batches), ALL, CLIENT)
    assert handler.split is not None
    assert handler.batching is not None
    dispatcher = Dispatcher({DEAD.partition: Ledger(0, 2)})
    for offset, key in enumerate(["a", "b"]):
        record = as_record(Sample(key=key, payload=[offset]).letter(), offset)
        dispatcher.deliver(record, list(handler.split(record)))
    batch = Batcher(dispatcher, handler.batching).take()
    assert batch is not None
    handler.handle_batch(batch)

    ((first, second),) = calls
    assert {first.key, second.key} == {"a", "b"}
    assert (first.message.topic, first.attempt) == ("orders", 4)
    assert handler.batching.coalesce is None


def test_a_split_that_raises_fatal_halts_a_redrive_too() -> None:
    class NoSchema(Handler):
        def split(self, message: Message) -> Iterator[SubMessage]:
            raise Fatal("no schema")

        def handle(self, sub: SubMessage) -> None: ...

    unit = Unsplit(b"{", "ValueError", "no", "ValueError: no")
    letter = as_record(Sample(sub=unit, reason="split failed").letter())
    handler = redriving(LoadedHandler("no-schema", NoSchema), ALL, CLIENT)
    assert handler.split is not None

    with pytest.raises(SplitFailed, match="no schema"):
        split_or_reject(handler.split, letter)


def test_a_letter_of_a_whole_message_is_left_alone_once() -> None:
    class Splits(Handler):
        def split(self, message: Message) -> Iterator[SubMessage]:
            yield from map(SubMessage, "abc")

        def handle(self, sub: SubMessage) -> None: ...

    unit = Unsplit(b"{", "ValueError", "no", "ValueError: no")
    letters = [Sample(sub=unit, reason="split failed").letter(), Sample().letter()]
    others = RedriveSettings(LetterFilter(("no such reason",)))
    handler = redriving(LoadedHandler("splits", Splits), others, CLIENT)
    assert handler.split is not None

    found = [list(handler.split(as_record(letter))) for letter in letters]

    assert list(map(len, found)) == [3, 1]
    assert not any(map(selects, chain.from_iterable(found)))
    assert handler.left_alone == {NOT_MATCHED: 2}, "letters are counted"


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


def test_what_is_no_dead_letter_or_can_not_be_made_again_is_skipped() -> None:
    letters = [Sample(payload=object()).letter(), Sample(key=object()).letter()]
    for record in (Message(DEAD, 5, b"key", b"value"), *map(as_record, letters)):
        assert isinstance(split(ALL, record), LeftAlone)


def test_only_what_is_no_letter_is_skipped_and_what_is_not_redriven_is_pending() -> None:
    dispatcher = Dispatcher({DEAD.partition: Ledger(0, 3)}, rule_filter=RuleFilter(selects=selects))
    some = RedriveSettings(LetterFilter(("no such reason",)))
    lost = Sample().letter().without_payload()
    for record in (Message(DEAD, 0, b"", b""), as_record(lost, 1), as_record(Sample().letter(), 2)):
        dispatcher.deliver(record, list(split_letter(some, record)))

    messages, subs = dispatcher.counts()
    assert messages == subs
    assert (subs.read, subs.skipped, subs.pending) == (3, 1, 2)
    assert set(dispatcher.unhandled().skipped_for.values()) == {1}
    assert dispatcher.watermarks == {DEAD.partition: 1}
    assert dispatcher.load.left_pending == 2


@pytest.mark.parametrize("encoding", [Encoding.GONE, Encoding.ELSEWHERE, Encoding.FORBIDDEN])
def test_what_is_left_of_a_letter_without_its_original_stays(
    encoding: Encoding,
) -> None:
    """Two of its three sub-messages are done; then retention deleted its message."""
    letter = replace(there_and_back(Sample()), payload_encoding=encoding)
    done = Partial(3, 0xCAFE, 0b101)
    before = progress_at(partial={0: done}, sub_messages=counts(done=2))
    ledgers = {DEAD.partition: Ledger(0, 1, before)}
    dispatcher = Dispatcher(ledgers, rule_filter=RuleFilter(selects=selects))
    record = as_record(Sample().letter(), 0)
    dispatcher.deliver(record, list(split_letter(ALL, record, read=lambda _: letter)))

    messages, subs = dispatcher.counts()
    assert (messages, subs) == (counts(pending=1), counts(done=2, pending=1))
    assert dispatcher.progress()[DEAD.partition].partial == {0: done}


def test_no_claim_of_a_part_finishes_a_letter_without_its_original() -> None:
    letter = replace(there_and_back(Sample()), payload_encoding=Encoding.GONE)
    record = as_record(Sample().letter(), 0)
    subs, _ = identify_or_reject(record, split_letter(ALL, record, read=lambda _: letter))
    shard_map = ShardMap(Order.SUB_KEY)
    claim = f"{shard_map.shard_of(subs[0], 16)}/16"
    skipped = {Outcome.SKIPPED: ((0, 1),)}
    for done, progress in [
        (0, progress_at(1)),  # it has finished a sub-message that the letter had
        (0, progress_at(partial={0: Partial(3, 7, 1)}, outcomes=skipped)),
        (1, progress_at(1, outcomes=skipped)),  # it has skipped the letter itself
    ]:
        others = OtherClaims({claim: {DEAD.partition: progress}}, shard_map)
        assert others.finished(record, subs) == done


@given(mutated_letters())
def test_what_is_meant_of_letters_changes_nothing_of_whose_they_are(record: Message) -> None:
    meanings = (
        ALL,
        RedriveSettings(LetterFilter(("no such reason",))),
        RedriveSettings(max_redrives=0),
    )
    keys = [identify(record, [split(settings, record)]) for settings in meanings]
    assert repr(keys[0]) == repr(keys[1]) == repr(keys[2])
