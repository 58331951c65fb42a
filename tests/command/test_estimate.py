"""``drainer estimate``: how long it will take, and what binds; a canary that counts as drained."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from command.conftest import distinct, operations, same
from command.process import Command
from command.record import every_place
from command.test_failure_policy import accounts
from drainer.cli.engines import EngineOptions
from drainer.cli.options import LatencyOptions
from drainer.engine.preview import EngineName
from drainer.insight.cli.estimate import question_of
from drainer.insight.forecast.on_spark import Cores
from drainer.model.settings import LocalSettings
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic

RETENTION_IN = re.compile("warning: retention may delete the head of the backlog in (59m|1h 00m)")
CEILING = 1.35  # of the time that theory gives: a busy machine costs more


def estimated(command: Command, topic: Topic, *more: str, **options: object) -> dict[str, Any]:
    what = [*command.what(topic), *command.options(**options), "--from", "earliest"]
    answer = command("estimate", *what, *more, "-o", "json").answer
    assert answer["status"] == "estimated"
    assert answer["exit_code"] == 0
    found = answer["estimate"]
    assert isinstance(found, dict)
    return found


def test_each_order_has_its_limit_and_its_serial_time(command: Command) -> None:
    topic = command.topic(distinct(500))
    found = estimated(command, topic, "--latency", "20ms", "-c", "50")
    assert found["messages"] == found["sub_messages"] == found["sampled_messages"] == 500
    parallel, serial = found["sub-key"], found["partition"]
    assert 0.2 <= parallel["seconds"] < 10 * CEILING
    assert parallel["bound"] == "concurrency"
    assert 0.02 <= parallel["serial_s"] < 0.03
    assert 10 <= serial["seconds"] < 10 * CEILING
    assert serial["bound"] == found["key"]["bound"] == "hottest lane"
    assert serial["serial_s"] == pytest.approx(10, rel=0.2)
    assert [row["concurrency"] for row in found["table"]] == [5, 10, 25, 50, 100, 250, 500]
    assert found["table"][0]["seconds"] > found["table"][3]["seconds"]
    assert command.left_behind == []  # no plan
    assert not command.record.path.exists()  # nothing was handled, and the handler not opened
    assert command.committed(topic) == {0: None}


def test_a_deadline_is_met_or_missed_and_the_least_concurrency_is_given(command: Command) -> None:
    topic = command.topic(same(100) + distinct(100))
    for deadline, met, least in (("30s", True, 2), ("1s", False, None)):
        found = estimated(command, topic, "--latency", "40ms", "-c", "20", "--deadline", deadline)
        verdict = found["deadline"]
        assert (verdict["met"], verdict["margin_s"] > 0) == (met, met)
        assert verdict["least_concurrency"] == least  # a hot lane bears no more than one


def test_a_canary_is_drained_after_a_yes_and_the_rest_is_estimated(command: Command) -> None:
    values = operations(300)
    topic = command.topic(values)
    what = [*command.what(topic), *command.options(pause_ms=5), "--from", "earliest"]
    assert "confirmation" in command("estimate", *what, "--canary", "40", code=3).error
    assert command.left_behind == []
    answer = command("estimate", *what, "--canary", "40", "--yes", "-o", "json").answer
    assert answer["canary"]["status"] == "canary"
    accounts(answer["canary"]["messages"], read=40, done=40)
    assert answer["estimate"]["messages"] == 260
    assert 0.005 <= answer["estimate"]["latency"]["mean_s"] < 0.1
    assert "canary" in answer["estimate"]["latency"]["source"]
    assert 0 < answer["estimate"]["costs"]["handle_s"] < 0.005
    assert not any("unknown" in note for note in answer["estimate"]["notes"])
    assert command.committed(topic) == {0: 40}
    assert PlanFile(command.plan(topic)).load().plan.account.watermark(0) == 40
    assert set(command.record.done()) == every_place(values[:40])
    summary = command.resume(topic, "-o", "json").answer
    assert summary["messages"]["done"] == 300
    command.ensure_drained(topic, once=True)


def test_a_canary_follows_the_failure_policy_and_prints_what_it_moved(command: Command) -> None:
    topic = command.topic(distinct(60))
    what = [*command.what(topic), *command.options(fail="0/3/0"), "--from", "earliest"]
    outcome = command(
        *("estimate", *what, "--canary", "40", "--yes", "--retries", "0"),
        *("--on-failure", "skip", "--no-breaker"),
        code=6,
    )
    assert command.committed(topic) == {0: 40}
    moved = f"moved group {command.group(topic)} on {topic.name}: partition 0: none -> 40"
    assert moved in outcome.err
    assert f"drainer plan undo {command.plan(topic).name}" in outcome.err
    assert outcome.way_out("resume")[:1] == ["resume"]
    # Looking from below where the canary left the group moves nothing, so nothing forbids it.
    look = command("estimate", *what, "--latency", "10ms", "-o", "json").answer["estimate"]
    assert look["messages"] == 60
    assert any("below the committed offset 40" in note for note in look["notes"])


def test_the_latency_of_an_earlier_drain_is_taken(command: Command) -> None:
    topic, file = command.topic(distinct(100)), command.home / "summary.json"
    latency = {"count": 101, "mean_s": 0.02, "percentiles_s": [0.02] * 101}
    file.write_text(json.dumps({"format": "x", "latency": latency}))
    found = estimated(command, topic, "--latency-from", str(file), "-c", "10")
    assert found["latency"]["mean_s"] == 0.02
    assert 0.2 <= found["sub-key"]["seconds"] < 1.0
    assert any("how long `handle` computes is unknown" in note for note in found["notes"])


def test_a_dry_run_has_the_estimate_too_and_takes_the_quicker_engine(command: Command) -> None:
    topic = command.topic(distinct(300))
    what = [*command.what(topic), *command.options(), "--from", "earliest", "--dry-run"]
    more = ("--latency", "10ms", "--deadline", "1h", "--master", "local[2]", "-o", "json")
    answer = command("run", *what, *more).answer
    estimate, engine = answer["estimate"], answer["engine"]
    assert answer["status"] == "dry-run"
    assert estimate["deadline"]["met"] is True
    assert estimate["engine"] == engine["name"] == "process", "it has so little to do"
    assert estimate["by_engine"]["spark"] > estimate["by_engine"]["process"] > 0
    assert estimate["by_engine"]["process"] == estimate["sub-key"]["seconds"]
    assert engine["why"].startswith("estimated: ")
    printed = command("run", *what, "-o", "json")
    typical = printed.answer["estimate"]["latency"]
    assert "assumes 10ms per call" in printed.hint
    assert (typical["source"], typical["mean_s"]) == ("assumed", pytest.approx(0.01, rel=0.1))


@pytest.mark.parametrize(
    ("engines", "latency", "requested"),
    [
        (EngineOptions(), "10ms", (EngineName.PROCESS, None)),
        (EngineOptions(master="local[1]"), "10ms", (EngineName.AUTO, Cores(1, 2 * 1024**3))),
        (EngineOptions(master="local[1]"), None, (EngineName.SPARK, Cores(1, 2 * 1024**3))),
        (
            EngineOptions(engine=EngineName.PROCESS, master="local[1]"),
            "10ms",
            (EngineName.PROCESS, None),
        ),
        (EngineOptions(master="yarn"), "10ms", (EngineName.PROCESS, None)),
    ],
)
def test_no_engine_is_chosen_by_a_latency_that_is_assumed(
    engines: EngineOptions, latency: str | None, requested: tuple[EngineName, Cores | None]
) -> None:
    question = question_of(LatencyOptions(latency=latency), LocalSettings(), engines)

    assert (question.engine, question.cores) == requested


def first_of(output: str) -> str:
    """First line, other than those about what takes a while."""
    return next(line for line in output.splitlines() if not line.endswith("…"))


def test_retention_that_is_quicker_than_the_drain_comes_before_all_else(command: Command) -> None:
    topic = command.topic(distinct(300), config={"retention.ms": "3600000"})
    what = [*command.what(topic), "--from", "earliest", "--order", "partition"]
    for words in (("estimate",), ("run", *command.options(), "--dry-run")):
        slow = command(*words, *what, "--latency", "20s")
        assert RETENTION_IN.match(first_of(slow.err))
        assert slow.err.count("retention.ms, offset 0 of partition 0") == 1
        assert "and draining it takes about 1h 40m" in slow.err


HOT = "sub_key == 'hot'"


def test_what_rules_skip_is_no_part_of_the_work(command: Command) -> None:
    topic = command.topic(same(100) + distinct(100))
    found = estimated(command, topic, "--latency", "20ms", "--skip", HOT)
    assert found["rules"] == {
        "sub_messages": 200,
        "skipped": 100,
        "by_rule": {HOT: 100},
    }
    assert found["sub_messages"] == 100
    assert found["sub-key"]["serial_s"] < 0.03


FOLDS = """
from drainer import Handler
class Folds(Handler):
    async def handle(self, sub): pass
    def coalesce(self, earlier, later): return later
class Fails(Folds):
    def coalesce(self, earlier, later): raise KeyError("price")
class Batches(Handler):
    max_batch = 10
    async def handle_batch(self, subs): pass
"""


def test_what_a_handler_folds_or_takes_at_once_is_in_the_estimate(command: Command) -> None:
    topic = command.topic()
    topic.produce(["x"] * 500, partition=0)
    (command.folder / "folds.py").write_text(FOLDS)
    what = ["--topic", topic.name, "--group", "g", "-b", topic.bootstrap, "--from", "earliest"]
    what += ["--latency", "20ms", "-c", "10"]
    as_json = command("estimate", *what, "--handler", "folds.py:Folds", "-o", "json")
    folded = as_json.answer["estimate"]
    assert folded["sub-key"]["seconds"] < 1
    assert folded["sub-key"]["folded"] + folded["sub-key"]["calls"] == 500
    assert folded["bundling"]["coalesce"] is True
    refused = command("estimate", *what, "--handler", "folds.py:Fails", code=3)
    assert "coalesce raised KeyError: 'price'" in refused.error
    batches = command("estimate", *what, "--handler", "folds.py:Batches", "--order", "none")
    # Fifty, or a few more: a call takes what is there at that moment.
    assert re.search(r"\b5\d for 500 sub-messages", batches.out)
