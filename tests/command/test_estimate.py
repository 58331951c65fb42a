"""``drainer estimate``: how long a drain will take, and what limits it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from command.conftest import distinct, same
from command.process import Command
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
    least_s, most_s = found["range_s"]
    assert 0 < least_s <= parallel["seconds"] <= most_s
    assert any("the processor time of `handle` is unknown" in note for note in found["notes"])
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
        assert (not verdict["missed"], verdict["margin_s"] > 0) == (met, met)
        assert verdict["least_concurrency"] == least  # a hot lane bears no more than one


def test_with_only_the_verdict_and_the_tables_are_of_what_is_selected(command: Command) -> None:
    topic = command.topic(same(100) + distinct(100))
    words = ("--latency", "40ms", "-c", "2", "--deadline", "2s")
    whole = estimated(command, topic, *words, "--first", "key == '0'")
    selected = estimated(command, topic, *words, "--only", "key == '0'")
    assert (whole["sub_messages"], selected["sub_messages"]) == (200, 1)
    assert (whole["deadline"]["missed"], selected["deadline"]["missed"]) == (True, False)
    assert selected["deadline"]["least_concurrency"] == 1
    (of_class,) = selected["first"]["classes"]
    assert selected["first"]["seconds"] == of_class["seconds"]
    for forecast in (selected["sub-key"], selected["partition"], *selected["table"]):
        assert forecast["seconds"] < 1


@pytest.mark.long
def test_a_part_that_is_drained_first_measures_the_latency_of_all(command: Command) -> None:
    topic = command.topic(distinct(60))
    command.drain(topic, "--until", "40", pause_ms=5)
    assert command.committed(topic) == {0: 40}
    # Looking from below where that part left the group moves nothing, so nothing forbids it.
    found = estimated(command, topic, "--latency", str(command.plan(topic)), "-c", "10")
    assert found["messages"] == 60
    assert 0.005 <= found["latency"]["mean_s"] < 0.1
    assert 0 < found["costs"]["handle_s"] < 0.005
    assert any("below the committed offset 40" in note for note in found["notes"])
    assert not any("unknown" in note for note in found["notes"])


@pytest.mark.long
def test_a_dry_run_has_the_estimate_too_and_no_report(command: Command) -> None:
    topic = command.topic(distinct(300))
    what = [*command.what(topic), *command.options(), "--from", "earliest", "--dry-run"]
    answer = command("run", *what, "--latency", "10ms", "--deadline", "1h", "-o", "json").answer
    assert answer["status"] == "dry-run"
    assert answer["estimate"]["deadline"]["missed"] is False
    printed = command("run", *what, "--report", "x.html", "-o", "json")
    typical = printed.answer["estimate"]["latency"]
    assert "assumes 10ms per call" in printed.hint
    assert (typical["source"], typical["mean_s"]) == ("assumed", pytest.approx(0.01, rel=0.1))
    assert "no report was written: a dry run has none" in printed.err


def first_of(output: str) -> str:
    """First line, other than those about what takes a while."""
    return next(line for line in output.splitlines() if not line.endswith("…"))


@pytest.mark.long
def test_retention_that_is_quicker_than_the_drain_comes_before_all_else(command: Command) -> None:
    topic = command.topic(distinct(300), config={"retention.ms": "3600000"})
    what = [*command.what(topic), "--from", "earliest", "--tune", "order=partition"]
    for words in (("estimate",), ("run", *command.options(), "--dry-run")):
        slow = command(*words, *what, "--latency", "20s")
        assert RETENTION_IN.match(first_of(slow.err))
        assert slow.err.count("retention.ms, offset 0 of partition 0") == 1
        assert "and draining it takes about 1h 40m" in slow.err


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


@pytest.mark.long
def test_what_a_handler_folds_or_takes_at_once_is_in_the_estimate(command: Command) -> None:
    topic = command.topic()
    topic.produce(["x"] * 500, key=b"k")
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
    batches = command("estimate", *what, "--handler", "folds.py:Batches", "--tune", "order=none")
    # Fifty, or a few more: a call takes what is there at that moment.
    assert re.search(r"\b5\d for 500 sub-messages", batches.out)
