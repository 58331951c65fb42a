"""Before a drain begins, a few messages are split, and what comes out is shown or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import drainer
from drainer.engine.preview import Preview
from drainer.errors import BrokerUnreachable, Refused
from drainer.insight.cli.estimate import estimate_page
from drainer.insight.cli.inspect import inspection_warnings
from drainer.insight.distribution import Distribution
from drainer.insight.estimate import Question, make_estimate
from drainer.insight.inspection import InspectRequest, inspect_backlog
from drainer.insight.measurement import backlog_of, measure_backlog
from drainer.loading.loader import LoadedHandler
from drainer.message import Origin
from drainer.model.priority import NO_CLASSES
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.terms import BY_HANDLER, PayloadSettings, Unkeyed
from drainer.operations import look
from drainer.operations.start import Prepared, Request, prepare
from drainer.text import mask
from kafka.topic import Topic
from operations.conftest import Story

ORDERS = [
    json.dumps({"customer": n % 3, "documents": [{"id": f"d-{n}"}, {"id": f"e-{n}"}, {"id": "f"}]})
    for n in range(30)
]


class ByDocument(drainer.Handler):
    def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
        for each in json.loads(message.value or b"")["documents"]:
            yield drainer.SubMessage(each["id"], each)

    async def handle(self, sub: drainer.SubMessage) -> None: ...


class AfterOpen(ByDocument):
    field: Any = None

    def open(self, context: drainer.Context) -> None:
        self.field = "documents"

    def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
        for each in json.loads(message.value or b"")[self.field.lower()]:
            yield drainer.SubMessage(each["id"], each)


class Wrong(ByDocument):
    def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
        return [drainer.SubMessage(each) for each in json.loads(message.value or b"")["docs"]]


class Plain(drainer.Handler):
    async def handle(self, sub: drainer.SubMessage) -> None: ...


class Nothing(ByDocument):
    def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
        return ()


class Barriers(ByDocument):
    def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
        if message.offset % 3 == 0:
            yield drainer.Barrier(None)
        elif message.offset % 3 == 1:
            yield drainer.SubMessage(None, keys=("a", "b"))


@pytest.fixture
def orders(story: Story, bootstrap: str) -> Iterator[Story]:
    topic = Topic(bootstrap, f"{story.topic.name}-orders")
    topic.produce(ORDERS)
    yield replace(story, topic=topic)
    topic.discard()


def requested(
    story: Story,
    handler: type[drainer.Handler] = ByDocument,
    failures: FailureSettings | None = None,
    payloads: PayloadSettings = BY_HANDLER,
    first: Sequence[str] = (),
) -> Request:
    return Request(
        story.topic.name,
        story.group,
        LoadedHandler("my_handlers.py:Reindex", handler, payloads=payloads),
        from_="earliest",
        plan_path=story.file.path,
        failures=failures or FailureSettings(),
        classes=NO_CLASSES.requested(first, only=False),
    )


def prepared(story: Story, *of: Any, **more: Any) -> Prepared:
    return prepare(story.cluster, requested(story, *of, **more), LocalSettings())


def action(story: Story, *of: Any, **more: Any) -> Preview:
    return prepared(story, *of, **more).action


def test_what_comes_out_of_some_messages_is_shown(orders: Story) -> None:
    found = action(orders)

    assert len(found.examples) == look.EXAMPLES
    assert found.examples[0] == "0:0 → 3 sub-messages: 'd-0', 'e-0', …"
    assert not found.needs_yes
    assert not any("split" in each for each in found.warnings)
    shown = action(orders, Barriers).examples
    assert shown == ("0:0 → barrier", "0:1 → 'a' + 'b'", "0:2 → nothing")
    assert (orders.left, orders.committed) == ([], None)


def test_keys_of_examples_are_masked_as_all_others(
    orders: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mask.VARIABLE, "secret")

    assert "d-0" not in action(orders).examples[0]
    with pytest.raises(Refused) as caught:
        action(orders, Wrong)
    assert "customer" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("handler", [Wrong, ByDocument])
def test_a_split_that_takes_no_message_apart_is_refused_with_the_fields_that_there_are(
    orders: Story, handler: type[drainer.Handler]
) -> None:
    payloads = (
        PayloadSettings(split="docs", keys=("payload.id",)) if handler is ByDocument else None
    )

    with pytest.raises(Refused, match=r" takes none of 30 messages apart; .*/0/0: ") as caught:
        prepared(orders, handler, payloads=payloads or BY_HANDLER)

    what, way_out = "split", "Fix `split`"
    if payloads is not None:
        what, way_out = "--split docs", "Write --split documents"
    assert str(caught.value).startswith(f"{what} takes none")
    fields = "the message has the fields customer, documents"
    assert (caught.value.hint or "").startswith(f"{way_out}: {fields}.")
    assert caught.value.exit_code == 3
    assert (orders.left, orders.committed) == ([], None)


@pytest.mark.parametrize("split", [None, "documents"])
def test_an_expression_that_fails_is_named_by_the_way_out(orders: Story, split: str | None) -> None:
    payloads = PayloadSettings(split, keys=("[payload.id]",))

    with pytest.raises(Refused) as caught:
        prepared(orders, payloads=payloads)

    key = payloads.keys[0]
    assert f"--key {key}: it is a list, but a key must be text" in str(caught.value)
    assert (caught.value.hint or "").startswith(f"Correct --key {key}")


def test_a_setting_for_rejected_messages_is_meant(orders: Story) -> None:
    found = action(orders, Wrong, FailureSettings(on_split_failure=OnFailure.SKIP))

    assert any("split takes none of 30 messages apart" in each for each in found.warnings)
    with pytest.raises(Refused):  # This was not said of messages that split rejects.
        action(orders, Wrong, FailureSettings(on_failure=OnFailure.SKIP))


def test_a_handler_that_splits_only_once_it_is_open_is_drained(orders: Story) -> None:
    ready = prepared(orders, AfterOpen)

    (warning,) = [each for each in ready.action.warnings if "split" in each]
    assert "drainer has not called open() yet" in warning
    assert ready.action.needs_yes
    assert orders.drain(ready).sub_messages.done == 90


def test_some_rejected_messages_are_a_warning(orders: Story) -> None:
    orders.topic.produce(["{}", "no JSON"])

    found = action(orders)

    assert any("split rejects 2 of 32 messages that drainer tried" in one for one in found.warnings)


def test_what_splits_into_nothing_at_all_is_confirmed_only_by_yes(orders: Story) -> None:
    found = action(orders, Nothing)

    assert found.needs_yes
    assert any("split makes nothing of 30 messages" in each for each in found.warnings)


def test_tombstones_prove_nothing_about_split(orders: Story) -> None:
    orders.topic.produce([None] * 5)
    payloads = PayloadSettings(split="docs", keys=("payload.id",))

    with pytest.raises(Refused, match="none of 30 messages"):
        prepared(orders, payloads=payloads)


def test_a_key_that_no_sub_message_has_is_refused_unless_they_keep_their_order(
    orders: Story,
) -> None:
    payloads = PayloadSettings(split="documents", keys=("payload.idd",))
    meant = "none of 90 sub-messages has the key payload.idd; did you mean payload.id?"

    with pytest.raises(Refused, match=re.escape(meant)) as caught:
        prepared(orders, payloads=payloads)
    assert "--unkeyed one-lane" in str(caught.value.hint)

    found = action(orders, payloads=replace(payloads, unkeyed=Unkeyed.ONE_LANE))
    assert found.needs_yes
    assert meant in found.warnings


def test_one_of_several_keys_that_no_sub_message_has_is_confirmed_only_by_yes(
    orders: Story,
) -> None:
    payloads = PayloadSettings(split="documents", keys=("payload.id", "payload.usr", "sub_key"))

    found = action(orders, payloads=payloads)

    assert found.needs_yes
    (warning,) = [each for each in found.warnings if "has the key" in each]
    assert warning.startswith("none of 90 sub-messages has the key payload.usr;")


def test_a_barrier_that_no_message_matches_is_a_warning_because_the_order_may_be_lost(
    orders: Story,
) -> None:
    def warned(barrier: str) -> list[str]:
        payloads = PayloadSettings(keys=("payload.customer",), barrier=barrier)
        found = action(orders, Plain, payloads=payloads)
        return [each for each in found.warnings if "--barrier" in each]

    (warning,) = warned("payload.custmer == 7")
    assert warning.endswith("there is no field 'custmer'; did you mean payload.customer?")
    (warning,) = warned("payload.customer == 99")
    assert warning.endswith("it is rare or misspelt; `drainer estimate` tries it on more messages")
    assert warned("payload.customer == 2") == []


def test_a_few_messages_among_many_tombstones_are_no_proof(orders: Story) -> None:
    orders.topic.produce([None] * 50)
    payloads = PayloadSettings(split="docs", keys=("payload.id",))

    found = action(orders, payloads=payloads)

    assert any("split rejects 30 of 80 messages" in each for each in found.warnings)


def test_an_expression_that_matches_nothing_is_a_warning_with_what_may_be_meant(
    orders: Story,
) -> None:
    rules = FailureSettings(skip=("payload.id == 'nobody'", "sub_key == 'f'"))

    found = action(orders, failures=rules, first=("payload.idd == 'd-1'", "payload.id == 'd-1'"))

    tried = "matches none of 90 sub-messages that drainer tried"
    meant = "there is no field 'idd'; did you mean payload.id?"
    rare = "it is rare or misspelt; `drainer estimate` tries it on more messages"
    assert [each for each in found.warnings if " matches " in each] == [
        f"--first payload.idd == 'd-1' {tried}: {meant}",
        f"--skip payload.id == 'nobody' {tried}: {rare}",
    ]


def test_an_estimate_warns_of_what_matches_nothing_in_its_larger_sample(orders: Story) -> None:
    rules = FailureSettings(skip=("payload.id == 'nobody'",), divert=("payload.id == 'f'",))
    payloads = PayloadSettings(split="documents", keys=("payload.id", "payload.usr"))
    first = ("payload.customer == 17", "payload.id == 'd-29'")
    request = requested(orders, Plain, rules, payloads, first)
    backlog, question = (
        backlog_of(orders.cluster, request),
        Question(Distribution.parse("10ms"), "10ms"),
    )

    found = make_estimate(orders.cluster, backlog, request, question, print)

    tried = "matches none of 90 sub-messages that drainer tried"
    has = "the payload has the fields id"
    assert list(estimate_page(found).warnings) == [
        f"--first payload.customer == 17 {tried}: there is no field 'customer';"
        " did you mean message.value.customer?",
        f"--skip payload.id == 'nobody' {tried}: it is rare or misspelt",
        f"none of 90 sub-messages has the key payload.usr; {has}",
    ]
    assert found.as_json()["warnings"] == list(found.measured.warnings) != []


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        ("payload.customer == 17", "; did you mean message.value.customer?"),
        ("payload.headers.source == 'a'", "; did you mean message.headers.source?"),
        ("payload.offset > 'a' or payload.idd == 1", "message.offset, payload.id?"),
        ("sub_key.lower == 'a'", "there is no field 'lower'"),
    ],
)
def test_a_field_of_the_message_is_named_with_the_way_to_it(expression: str, meant: str) -> None:
    skip = FailureSettings(skip=(expression,))
    tried = look.OptionsTried(NO_CLASSES, skip, BY_HANDLER)
    sub = drainer.SubMessage("d-1", {"id": "d-1"})
    origin, headers = Origin("orders", "topic-id", 3), [("source", b"a")]
    sub.message = drainer.Message(origin, 17, None, ORDERS[0].encode(), 0, headers)

    tried.add([sub])

    (warning,) = tried.unmatched()
    assert warning.endswith(meant)


def test_a_key_that_no_sub_message_has_is_refused_by_an_estimate_and_an_inspection(
    orders: Story,
) -> None:
    payloads = PayloadSettings(split="documents", keys=("payload.idd",))
    request = requested(orders, Plain, payloads=payloads)
    handler, meant = request.handler, re.escape("has the key payload.idd; did you mean payload.id?")

    with pytest.raises(Refused, match=meant):
        measure_backlog(orders.cluster, backlog_of(orders.cluster, request), request, 10)
    inspected = InspectRequest(request.topic, request.group, handler, from_="earliest")
    with pytest.raises(Refused, match=meant):
        inspect_backlog(orders.cluster, inspected)


def test_an_inspection_warns_of_a_rule_that_matches_nothing(orders: Story) -> None:
    request = requested(orders)
    skip = ("payload.idd == 'd-1'", "payload.id == 'd-1'")

    found = inspect_backlog(
        orders.cluster,
        InspectRequest(request.topic, request.group, request.handler, from_="earliest", skip=skip),
    )

    (warning,) = [each for each in inspection_warnings(found) if "matches" in each]
    assert warning == (
        "--skip payload.idd == 'd-1' matches none of 90 sub-messages that drainer tried:"
        " there is no field 'idd'; did you mean payload.id?"
    )


def test_an_expression_that_selects_three_in_a_hundred_is_seen(
    orders: Story, bootstrap: str
) -> None:
    topic = Topic(bootstrap, f"{orders.topic.name}-rare")
    topic.produce([json.dumps({"customer": n % 33}) for n in range(3_000)])
    try:
        found = action(replace(orders, topic=topic), Plain, first=("payload.customer == 4",))
    finally:
        topic.discard()

    assert not any("matches none" in each for each in found.warnings)


def test_offsets_without_messages_are_no_reason_to_refuse(orders: Story, bootstrap: str) -> None:
    topic = Topic(bootstrap, f"{orders.topic.name}-holes")
    topic.transact(["aborted"] * 5, commit=False)
    try:
        found = action(replace(orders, topic=topic), Wrong)
    finally:
        topic.discard()

    assert found.offsets
    assert found.examples == ("none: drainer read no message of the backlog",)


def test_messages_that_can_not_be_read_now_are_a_warning(
    orders: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise BrokerUnreachable("nothing arrives")

    monkeypatch.setattr(look, "sample_ranges", silent)

    assert any("nothing arrives" in each for each in action(orders).warnings)


def test_a_slow_split_is_tried_on_fewer_messages(
    orders: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "SPLIT_S", 0)

    assert len(action(orders).examples) == 1


def test_messages_of_all_partitions_are_tried(orders: Story, bootstrap: str) -> None:
    topic = Topic(bootstrap, f"{orders.topic.name}-two", partitions=2)
    for number in range(2):
        topic.produce(ORDERS, partition=number)
    try:
        found = action(replace(orders, topic=topic))
    finally:
        topic.discard()

    assert [each.partition(" ")[0] for each in found.examples] == ["0:0", "1:0", "0:1"]


def test_a_resume_does_not_split_before_it_begins(orders: Story) -> None:
    class Counts(ByDocument):
        splits = 0

        def split(self, message: drainer.Message) -> Iterable[drainer.SubMessage]:
            Counts.splits += 1
            return super().split(message)

    claims = orders.write_plan(20)
    assert claims is not None
    assert orders.prepared_to_resume(Counts()).action.examples == ()
    assert Counts.splits == 0
