"""What a program gives is checked before anything is done: an error says what is wrong, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import drainer
from drainer.engine.control import Change, Pause, Stop
from drainer.errors import UsageError
from drainer.handlers import Count

NOWHERE: dict[str, Any] = {"topic": "t", "group": "g", "client": {"bootstrap.servers": "h:1"}}
CLASS = "Give the class, or a reference such as my_handlers.py:Reindex."


def resume(plan: Any = "no.plan.json", **given: Any) -> None:
    drainer.resume(plan, **{"client": NOWHERE["client"], **given})


def spark(**given: Any) -> None:
    from drainer.spark import drain  # noqa: PLC0415 - as programs with Spark do

    drain(object(), **{**NOWHERE, "handler": "count", "plan": "p.json", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [drainer.drain, drainer.estimate, drainer.inspect, spark])
@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        ({"topic": None}, "topic is None, and not a text", "Give a text."),
        ({"group": 7}, "group is 7, and not a text", "Give a text."),
        ({"handler": Count()}, "handler is an object of Count, and not a class", CLASS),
        ({"handler": 5}, "handler is 5, and not a class", CLASS),
        ({"client": None}, "client is None", "Give properties of librdkafka, or the file"),
        ({"partitions": 0.5}, "partitions is 0.5, and not several", "or a text."),
        ({"partitions": [0.5]}, "partitions is an object of list", "each SupportsIndex or a text"),
        ({"from_": 7}, "from_ is 7, and not a text", "Give a text."),
        ({"payloads": {"split": "x"}}, "payloads is an object of dict", "Give PayloadSettings."),
    ],
)
def test_an_argument_of_another_type_is_refused(
    function: Callable[..., object], given: dict[str, Any], text: str, hint: str
) -> None:
    more = {"latency": "1ms"} if function is drainer.estimate else {}
    with pytest.raises(UsageError) as caught:
        function(**{**NOWHERE, "handler": "count", **more, **given})
    assert text in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


@pytest.mark.parametrize(
    ("function", "given", "text"),
    [
        (drainer.drain, {"handler": None}, "handler is None"),
        (drainer.drain, {"first": 5}, "first is 5, and not several, each a text or a text"),
        (drainer.drain, {"first": [None]}, "first is an object of list"),
        (drainer.drain, {"plan": 5}, "plan is 5, and not a text or Path or None"),
        (drainer.drain, {"settings": {"concurrency": 5}}, "and not LocalSettings"),
        (drainer.drain, {"failures": None}, "failures is None, and not FailureSettings"),
        (drainer.drain, {"commit": "no"}, "commit is a text, and not True or False"),
        (drainer.drain, {"on_status": "print"}, "on_status is a text, and not a function"),
        (drainer.drain, {"control": True}, "control is True, and not Control or None"),
        (drainer.inspect, {"skip": 5}, "skip is 5"),
        (drainer.inspect, {"messages": "9"}, "messages is a text, and not a whole number or None"),
        (drainer.inspect, {"messages": True}, "messages is True"),
        (drainer.estimate, {"latency": 0.01}, "latency is 0.01, and not a text"),
        (spark, {"order": "sub-key"}, "order is a text, and not Order"),
        (spark, {"options": {"ms": 2}}, "options is an object of dict, and not a mapping of texts"),
    ],
)
def test_an_argument_of_one_function_is_checked_too(
    function: Callable[..., object], given: dict[str, Any], text: str
) -> None:
    more = {"latency": "1ms"} if function is drainer.estimate else {}
    with pytest.raises(UsageError) as caught:
        function(**{**NOWHERE, "handler": "count", **more, **given})
    assert text in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"plan": None}, "plan is None, and not a text or Path"),
        ({"handler": Count()}, "handler is an object of Count"),
        ({"accept_gap": 1}, "accept_gap is 1, and not True or False"),
        ({"failures": 5}, "failures is 5, and not FailureSettings or None"),
    ],
)
def test_an_argument_of_a_resume_is_checked_too(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        resume(**given)


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (drainer.LocalSettings, {"concurrency": 5.0}, "concurrency is 5.0"),
        (drainer.LocalSettings, {"concurrency": True}, "concurrency is True"),
        (drainer.LocalSettings, {"concurrency": 0}, "with the concurrency 0 nothing would"),
        (drainer.LocalSettings, {"grace_s": None}, "grace_s is None, and not a number"),
        (drainer.LocalSettings, {"grace_s": -1}, "a duration is below zero"),
        (drainer.LocalSettings, {"deadline": datetime(2099, 1, 1)}, "has no time zone"),
        (drainer.LocalSettings, {"options": {"ms": 200}}, "and not a mapping of texts"),
        (drainer.LocalSettings, {"plan_interval_s": 0}, "can't be written every 0 s"),
        (drainer.FailureSettings, {"retries": 1.5}, "retries is 1.5, and not a whole number"),
        (drainer.FailureSettings, {"retries": -1}, "below zero"),
        (drainer.FailureSettings, {"on_failure": None}, "on_failure is None, and not OnFailure"),
        (drainer.FailureSettings, {"rate": 0}, "nothing would ever start"),
        (drainer.FailureSettings, {"rate": "5"}, "'5' is not a rate"),
        (drainer.FailureSettings, {"skip": [5]}, "skip is an object of tuple"),
        (drainer.FailureSettings, {"dead_letter_topic": 5}, "dead_letter_topic is 5"),
        (drainer.PayloadSettings, {"keys": 5}, "keys is 5"),
        (drainer.PayloadSettings, {"split": b"lines"}, "split is an object of bytes"),
    ],
)
def test_a_setting_of_another_type_is_refused(kind: type, given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind(**given)
    assert text in str(caught.value)
    assert caught.value.hint


def test_a_list_will_do_for_several() -> None:
    assert drainer.FailureSettings(skip=["payload.n > 1"]).skip == ("payload.n > 1",)  # type: ignore[arg-type]


def test_a_value_that_may_be_secret_is_not_shown(tmp_path: Path) -> None:
    client = {"sasl.password": "hush", 5: "x"}
    with pytest.raises(UsageError, match="client is an object of dict") as caught:
        drainer.drain(**{**NOWHERE, "handler": "count", "client": client})
    assert "hush" not in f"{caught.value}{caught.value.hint}"


def requests() -> Iterator[tuple[Callable[[], object], str]]:
    control: Any = drainer.Control()
    yield lambda: control.request({"name": "pause"}, by="ana"), "request is an object of dict"
    yield lambda: control.request(Change, by="ana"), "request is an object of type"
    yield lambda: control.request(Stop(), by=None), "by is None, and not a text"
    yield lambda: control.request(Change({"concurency": 5}), by="ana"), "concurency can't change"
    pause: Any = Pause
    yield lambda: pause(for_s="10m"), "for_s is a text, and not a number or None"
    change: Any = Change
    yield lambda: change(5), "values is 5, and not a mapping"


@pytest.mark.parametrize(("make", "text"), [*requests()])
def test_a_request_that_makes_no_sense_is_refused_at_once(
    make: Callable[[], object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert text in str(caught.value)
    assert caught.value.hint
