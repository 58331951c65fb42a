"""Spark as the engine: the options that choose it, its settings, and its preview."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from builders import a_plan, changed
from core.limit_samples import measured
from drainer.cli.engines import EngineOptions
from drainer.engine.preview import EngineName
from drainer.errors import UsageError
from drainer.handler import Handler
from drainer.kafka.settings import ClientSettings
from drainer.limits.search.boundary import cap_curve
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.plan import OffsetPlan
from drainer.model.priority import NO_CLASSES
from drainer.model.settings import FailureSettings
from drainer.operations.start import Prepared
from drainer.spark.api import SparkEngine
from drainer.spark.reading.slices import SliceReader
from drainer.spark.session import settings
from drainer.spark.session.settings import SparkSettings
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import LOCAL
from drainer.spark.state.state import state_beside
from drainer.spark.task.python_worker import HandlerSpec
from drainer.store.plan_file import PlanFile
from view import samples

PLAN = samples.plan()
ON_SPARK, IN_PROCESS = EngineName.SPARK, EngineName.PROCESS


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_java", lambda user: Path("/usr/bin/java"))


class Once(Handler):
    def handle(self, sub: SubMessage) -> None: ...


class Splits(Once):
    def split(self, message: Message) -> Iterator[SubMessage]:
        yield SubMessage()


class Whole(Splits):
    whole_messages = True


class WholeAnyhow(Once):
    whole_messages = True


def resolved(
    typed: EngineOptions, plan: OffsetPlan = PLAN, handler: type[Handler] = Once
) -> Prepared:
    prepared = Prepared(
        replace(samples.action(), plan=plan),
        handler=LoadedHandler("Once", handler),
        seen=None,
        policy=None,  # type: ignore[arg-type]
        file=PlanFile(Path("p")),
    )
    return typed.resolve(prepared, typed.spark(None))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        (EngineOptions(), "process"),
        (EngineOptions(engine=ON_SPARK), "spark"),
        (EngineOptions(master="local[2]"), "spark"),
        (EngineOptions(engine=IN_PROCESS, master="yarn"), "process"),
    ],
)
def test_an_engine_that_is_typed_counts_before_a_master(typed: EngineOptions, name: str) -> None:
    found = resolved(typed)
    assert found.action.engine.name == name
    assert isinstance(found.engine, SparkEngine) is (name == "spark")


def test_a_setting_for_spark_without_spark_is_refused_but_for_the_state_of_a_resume() -> None:
    state = EngineOptions(spark_conf={"drainer.state": "/state"})
    with pytest.raises(UsageError, match=r"drainer\.state is given, but"):
        state.spark(None)
    assert state.spark(None, resumes=True) is None
    assert state.state == "/state"


def test_a_plan_in_an_object_store_has_its_state_beside_it_on_spark() -> None:
    plan = "s3://bucket/orders.plan.json?region=eu-1"
    assert EngineOptions(engine=IN_PROCESS, master="yarn").spark(plan) is None
    beside = EngineOptions(master="yarn").spark(plan).state
    assert beside == "s3://bucket/orders.plan.json.state?region=eu-1"
    named = EngineOptions(master="yarn", spark_conf={"drainer.state": "gs://drains/x"})
    assert named.spark(plan).state == "gs://drains/x"


def test_a_plan_in_a_topic_has_its_state_in_the_current_folder() -> None:
    plan = "kafka://drainer-plans/orders.indexer"
    assert EngineOptions(master="local[2]").spark(plan).state is None
    assert state_beside(plan) == str(Path("orders.indexer.state").absolute())


@pytest.mark.parametrize(
    ("master", "spark", "first"),
    [("local[2]", None, ["payload.vip"]), ("sc://server", None, []), ("local[2]", object(), [])],
    ids=["a class is drained in this process before", "a server", "a session that is there"],
)
def test_spark_does_not_start_beside_the_lock_for_what_does_not_need_it(
    master: str, spark: Any, first: list[str]
) -> None:
    classes = NO_CLASSES.requested(first, only=False)
    plan = replace(PLAN, account=replace(PLAN.account, classes=classes))
    engine = SparkEngine(SparkSettings(master, {"drainer.state": "/state"}), spark)
    with engine.beginning(plan) as begun:
        assert begun is engine


READS_VALUES = FailureSettings(skip=("message.value.kind == 'test'",))
READS_NONE = FailureSettings(skip=("message.offset < 7",))


@pytest.mark.parametrize(
    ("handler", "failures", "why"),
    [
        (Splits, READS_NONE, None),
        (Whole, READS_NONE, "whole_messages"),
        (Splits, READS_VALUES, "--skip reads message.value"),
        (WholeAnyhow, READS_VALUES, None),  # With the default split, values are the payloads.
    ],
)
def test_the_preview_shows_that_whole_messages_are_shuffled(
    handler: type[Handler], failures: FailureSettings, why: str | None
) -> None:
    found = resolved(EngineOptions(engine=ON_SPARK), changed(PLAN, failures=failures), handler)
    shown = found.action.engine.settings.get("messages")
    assert shown is why or (str(shown).startswith("shuffled whole") and str(why) in str(shown))


@pytest.mark.parametrize(
    ("typed", "state"),
    [
        ({}, "/var/lib/drainer/orders.reindexer.plan.state"),
        ({"drainer.state": "s3://b/x"}, "s3://b/x"),
        ({"drainer.state": "x"}, str(Path("x").absolute())),
    ],
)
def test_tasks_write_beside_the_plan_unless_a_state_is_named(
    typed: dict[str, str], state: str
) -> None:
    found = resolved(EngineOptions(engine=ON_SPARK, spark_conf=typed))
    assert isinstance(found.engine, SparkEngine)
    assert found.engine.settings.state == found.action.engine.settings["state"] == state
    assert "spark conf" not in found.action.engine.settings


def test_tasks_read_at_their_share_of_what_groups_read() -> None:
    terms = replace(a_plan(0).terms, limits=cap_curve(measured({100: 1_000.0}, groups=5)))
    spec = HandlerSpec(Shipped("h.py:H"), ClientSettings("x:1"), terms, 1, "/state", LOCAL, 1)
    rest = cast("Any", None)
    task = SliceReader(spec, 1, 16, True, (), {}, rest, share=0.5, message_bytes=100.0)

    pace = task.pace()

    assert pace is not None
    assert pace.messages_per_s == pytest.approx(0.5 * 0.8 * 5_000)
