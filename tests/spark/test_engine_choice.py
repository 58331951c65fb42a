"""Choice of the engine: by which options, with which settings, and what can't run on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import changed
from drainer.cli.engines import EngineOptions
from drainer.engine.preview import EngineName
from drainer.errors import UsageError
from drainer.handler import Handler
from drainer.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings
from drainer.operations.start import Prepared
from drainer.spark.session import settings
from drainer.spark.session.settings import SparkEngine
from drainer.store.plan_file import PlanFile
from view import samples

PLAN = samples.plan()
BY_NAME, BY_MASTER = EngineOptions(engine=EngineName.SPARK), EngineOptions(master="local[2]")


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_java", lambda: Path("/usr/bin/java"))


class Once(Handler):
    def handle(self, sub: SubMessage) -> None: ...


class Splits(Once):
    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage()


class Whole(Splits):
    whole_messages = True


class WholeAnyhow(Once):
    whole_messages = True


def resolved(typed: EngineOptions, plan: OffsetPlan = PLAN, **changes: object) -> Prepared:
    return typed.resolve(prepared(plan, **changes), typed.spark(None))


def prepared(plan: OffsetPlan = PLAN, **changes: object) -> Prepared:
    return Prepared(
        replace(samples.action(), plan=plan),
        handler=LoadedHandler("Once", changes.pop("handler", Once)),
        seen=None,
        policy=None,  # type: ignore[arg-type]
        file=PlanFile(Path("p")),
        **changes,  # type: ignore[arg-type]
    )


def test_options_for_spark_without_a_master_are_refused() -> None:
    with pytest.raises(UsageError, match="no Spark master is named"):
        EngineOptions(tasks=7).spark(None)


@pytest.mark.parametrize(
    "typed", [EngineOptions(), EngineOptions(engine=EngineName.PROCESS, master="yarn")]
)
def test_a_plan_at_a_uri_is_for_spark(typed: EngineOptions) -> None:
    with pytest.raises(UsageError, match="a drain in this process needs a file"):
        typed.spark("s3://bucket/orders.plan.json")


def test_the_state_is_beside_a_plan_at_a_uri_unless_it_is_named() -> None:
    plan = "s3://bucket/orders.plan.json?region=eu-1"
    beside = EngineOptions(master="yarn").spark(plan).state
    assert beside == "s3://bucket/orders.plan.json.state?region=eu-1"
    assert EngineOptions(master="yarn", state="gs://drains/x").spark(plan).state == "gs://drains/x"


@pytest.mark.parametrize(
    ("typed", "name", "why"),
    [
        (EngineOptions(), "process", "no Spark master is named"),
        (EngineOptions(engine=EngineName.PROCESS, tasks=7), "process", "set by --engine"),
        (EngineOptions(engine=EngineName.PROCESS, master="yarn"), "process", "set by --engine"),
        (BY_NAME, "spark", "set by --engine"),
        (BY_MASTER, "spark", "a master is named"),
    ],
)
def test_an_engine_or_a_master_that_is_named_is_taken(
    typed: EngineOptions, name: str, why: str
) -> None:
    found = resolved(typed)
    assert (found.action.engine.name, found.action.engine.why) == (name, why)
    assert isinstance(found.engine, SparkEngine) is (name == "spark")


READS_VALUES = FailureSettings(skip=("message.value.kind == 'test'",))
READS_NONE = FailureSettings(skip=("message.offset < 7",))


@pytest.mark.parametrize(
    ("handler", "failures", "why"),
    [
        (Splits, READS_NONE, None),
        (Whole, READS_NONE, "whole_messages"),
        (Splits, READS_VALUES, "--skip reads message.value"),
        (WholeAnyhow, READS_VALUES, None),  # the default split: they are payloads
    ],
)
def test_that_whole_messages_are_shuffled_is_shown(
    handler: type[Handler], failures: FailureSettings, why: str | None
) -> None:
    found = resolved(
        BY_NAME, changed(PLAN, failures=failures), handler=handler
    ).action.engine.settings
    shown = found.get("messages")
    assert shown is why or (str(shown).startswith("shuffled whole") and str(why) in str(shown))


def test_tasks_write_beside_the_plan_unless_a_state_is_named() -> None:
    beside = "/var/lib/drainer/orders.reindexer.plan.state"
    for typed, state in (
        (None, beside),
        ("s3://b/x", "s3://b/x"),
        ("x", str(Path("x").absolute())),
    ):
        found = resolved(replace(BY_NAME, state=typed))
        assert isinstance(found.engine, SparkEngine)
        assert found.engine.settings.state == found.action.engine.settings["state"] == state
