"""Where a plan is: what a person may write, and what drainer makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.cli.options import parse_present
from drainer.errors import UsageError
from drainer.store.place import parse_place, place_for, topic_and_name
from drainer.store.plan_file import plan_at


def test_a_new_plan_is_named_by_topic_and_group_wherever_it_is() -> None:
    names = "orders", "indexer"
    assert place_for(None, *names) == Path("orders.indexer.plan.json")
    assert place_for("kafka://plans", *names) == "kafka://plans/orders.indexer"
    assert place_for("kafka://plans", *names, commits=False) == "kafka://plans/orders.indexer.again"
    for own in (Path("own.json"), "kafka://plans/own", "s3://bucket/own.json"):
        assert place_for(own, *names) == own
    odd = place_for("kafka://plans", "orders", "a/b c")
    assert parse_place(str(odd)) == odd, "a group may have any characters, and a name may not"
    aside = f"{place_for('kafka://plans', 100 * 't', 200 * 'g')}.20260102-180000-abcdef"
    assert parse_place(aside) == aside, "what was set aside can be named"


@pytest.mark.parametrize(
    "text",
    [
        *("kafka://", "kafka:///x", "kafka://b:9092/x", "kafka://plans/", "kafka://plans/a/b"),
        *("kafka://user@plans/x", "kafka://plans?x=y", "kafka://..", f"kafka://plans/{250 * 'x'}"),
    ],
)
def test_what_is_no_plan_in_a_topic_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no plan in a topic"):
        parse_place(text)


def test_a_plan_that_is_there_has_a_name_in_its_topic() -> None:
    assert topic_and_name("kafka://plans/orders.indexer") == ("plans", "orders.indexer")
    assert parse_place("kafka://plans") == "kafka://plans", "a new plan gets a name"
    with pytest.raises(UsageError, match="names a topic, but no plan in it"):
        parse_present("kafka://plans")


def test_a_plan_in_a_topic_needs_brokers() -> None:
    with pytest.raises(UsageError, match="nothing names its brokers"):
        plan_at("kafka://plans/orders.indexer")
