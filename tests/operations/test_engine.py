"""Which engine is chosen, what for, and what Spark is not chosen for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.core.order import Order
from drainer.core.plan import OffsetPlan
from drainer.engine.preview import EngineChoice, EngineName
from drainer.engine.settings import LocalSettings
from drainer.errors import Refused
from drainer.insight import engine_choice as chosen
from drainer.insight.canary import send_canary
from drainer.insight.engine_choice import (
    EngineRequest,
    choose_engine,
    settle_engine,
    unsuited,
)
from drainer.insight.forecast.forecast import CONCURRENCY, CPU, LANE, NOTHING, RATE, SPLIT, Forecast
from drainer.kafka.cluster import Cluster
from drainer.operations.engine import IN_PROCESS
from drainer.operations.start import Prepared
from drainer.policy.concurrency import Concurrency
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import RuleSettings
from drainer.spark.settings import OnSpark, SparkSettings
from view import samples

LOCAL = SparkSettings("local[2]")
BY_MASTER = EngineRequest(EngineName.AUTO, LOCAL, has_master=True)
ON_SPARK = EngineRequest(EngineName.SPARK, LOCAL)
BARRED = Refused("it can't be", hint="do it otherwise")
PLAN = samples.plan()


def found(bound: str, seconds: float, **bounds: float) -> Forecast:
    return Forecast(Order.SUB_KEY, 2_000, seconds, bound, bounds, 0.0, None)


def nobody_looks() -> str:
    raise AssertionError("an estimate was made that decides nothing")


def by_estimate(forecast: Forecast) -> tuple[str, str]:
    engine = choose_engine(EngineRequest(), None, lambda: forecast)
    return engine.name, engine.why


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """There is a Java, unless a test takes it away; and there are four cores."""

    def there(is_there: bool) -> None:
        def find() -> None:
            if not is_there:
                raise Refused("Spark needs Java, and none was found", hint="install a JDK")

        monkeypatch.setattr(chosen, "java_for_spark", find)

    monkeypatch.setattr(chosen, "cores", lambda: 4)
    there(True)
    return there


@pytest.mark.parametrize(
    ("asked", "barred", "name", "why"),
    [
        (EngineRequest(EngineName.PROCESS), None, "process", "as --engine says"),
        (EngineRequest(EngineName.SPARK), None, "spark", "as --engine says"),
        (BY_MASTER, None, "spark", "a master is named"),
        (BY_MASTER, BARRED, "process", "a master is named, but it can't be"),
    ],
)
def test_an_engine_or_a_master_that_is_named_is_taken_without_an_estimate(
    asked: EngineRequest, barred: Refused | None, name: str, why: str
) -> None:
    engine = choose_engine(asked, barred, nobody_looks)

    assert (engine.name, engine.why) == (name, why)


def test_without_a_master_or_an_estimate_it_is_the_process() -> None:
    engine = choose_engine(EngineRequest(), None, lambda: "")

    assert (engine.name, engine.why) == ("process", "no Spark master is named")
    assert choose_engine(EngineRequest(), BARRED, nobody_looks).name == "process"


def test_spark_without_java_is_refused_when_it_was_asked_for(java: Callable[[bool], None]) -> None:
    java(False)
    for asked in (ON_SPARK, BY_MASTER):
        with pytest.raises(Refused, match="needs Java"):
            choose_engine(asked, None, nobody_looks)


def test_what_can_t_be_is_refused_when_it_was_asked_for_by_name() -> None:
    with pytest.raises(Refused, match="it can't be"):
        choose_engine(ON_SPARK, BARRED, nobody_looks)


@pytest.mark.parametrize(
    ("bound", "seconds", "bounds", "name", "says"),
    [
        # 1,040 s of work on four cores, of which each has 40% left.
        (CPU, 1_000.0, {SPLIT: 40.0, CONCURRENCY: 100.0}, "spark", "about 10 min 50 s with Spark"),
        (SPLIT, 1_000.0, {CPU: 200.0}, "spark", "this process is the limit"),
        (CPU, 1_000.0, {LANE: 990.0}, "process", "which is not worth it"),
        (CPU, 80.0, {}, "process", "which is not worth it"),
        (LANE, 9_000.0, {CPU: 8_000.0}, "process", "and not this process"),
        (RATE, 9_000.0, {CPU: 8_000.0}, "process", "and not this process"),
        (NOTHING, 0.0, {}, "process", "there is nothing to handle"),
    ],
)
def test_an_estimate_takes_spark_when_the_process_is_the_limit_and_it_is_worth_it(
    bound: str, seconds: float, bounds: dict[str, float], name: str, says: str
) -> None:
    chosen_name, why = by_estimate(found(bound, seconds, **{bound: seconds, **bounds}))

    assert chosen_name == name
    assert says in why


def test_an_estimate_for_spark_without_java_or_another_core_stays_in_the_process(
    java: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    java(False)
    assert by_estimate(found(CPU, 9_000.0, **{CPU: 9_000.0})) == (
        "process",
        "an estimate says that this process is the limit: 150 min 0 s, and about 93 min 45 s"
        " with Spark on 4 cores, but Spark needs Java, and none was found",
    )
    monkeypatch.setattr(chosen, "cores", lambda: 1)
    assert "no other core" in by_estimate(found(CPU, 9_000.0, **{CPU: 9_000.0}))[1]


@pytest.mark.parametrize(
    ("plan", "running", "word"),
    [
        (replace(PLAN, redrive=RedriveSettings()), LocalSettings(), "redriven"),
        (
            replace(PLAN, rules=RuleSettings(limit_per_key=5), order="key"),
            LocalSettings(),
            "--limit-per-key with --order key",
        ),
        (PLAN, LocalSettings(concurrency=Concurrency.auto(None)), "--concurrency auto"),
    ],
)
def test_what_spark_can_t_do_is_known_beforehand(
    plan: OffsetPlan, running: LocalSettings, word: str
) -> None:
    barred = unsuited(plan, running)

    assert barred is not None
    assert word in str(barred)
    assert barred.hint
    assert unsuited(PLAN, LocalSettings()) is None
    assert unsuited(replace(PLAN, rules=RuleSettings(limit_per_key=5)), LocalSettings()) is None


class _NoCluster(Cluster):
    def __init__(self) -> None:
        """Touches nothing."""


def prepared(**changes: object) -> Prepared:
    return Prepared(
        samples.action(),
        PLAN,
        handler=None,  # type: ignore[arg-type]
        seen=None,
        policy=None,  # type: ignore[arg-type]
        **changes,  # type: ignore[arg-type]
    )


def test_tasks_write_beside_the_plan_unless_told_otherwise() -> None:
    settled = settle_engine(prepared(), ON_SPARK, LocalSettings())

    assert isinstance(settled.engine, OnSpark)
    assert settled.engine.settings.state == "/var/lib/drainer/orders.reindexer.plan.state"
    assert settled.action.engine.state == settled.engine.settings.state
    for said, state in (("s3://b/x", "s3://b/x"), ("state", str(Path("state").absolute()))):
        asked = EngineRequest(EngineName.SPARK, replace(LOCAL, state=said))
        assert settle_engine(prepared(), asked, LocalSettings()).action.engine.state == state


def test_the_plan_of_action_has_what_spark_is_given_without_its_secrets() -> None:
    spark = replace(LOCAL, tasks=4, wave_bytes=7, conf={"spark.x.password": "hidden"})
    settled = settle_engine(prepared(), EngineRequest(EngineName.SPARK, spark), LocalSettings())

    assert settled.action.as_json()["engine"] == {
        "name": "spark",
        "why": "as --engine says",
        "master": "local[2]",
        "tasks": 4,
        "wave_bytes": 7,
        "state": "/var/lib/drainer/orders.reindexer.plan.state",
        "conf": {"spark.x.password": "***"},
        "archives": (),
    }
    assert isinstance(settled.engine, OnSpark)
    assert settled.engine.settings.conf == {"spark.x.password": "hidden"}


def test_a_process_is_given_nothing_of_spark() -> None:
    settled = settle_engine(prepared(engine=OnSpark(LOCAL)), EngineRequest(), LocalSettings())

    assert settled.engine is IN_PROCESS
    assert settled.action.engine == EngineChoice(why="no Spark master is named")


def test_a_canary_is_refused_on_spark_before_anything_is_touched() -> None:
    with pytest.raises(Refused, match="a canary runs in this process"):
        send_canary(
            _NoCluster(), prepared(engine=OnSpark(LOCAL)), LocalSettings(), 10, print, print
        )
