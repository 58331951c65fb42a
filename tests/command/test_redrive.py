"""``drainer redrive``: dead letters go to the handler again, and none is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from command.conftest import MakeTopic
from command.process import FAST, Command, Outcome, Running
from command.test_dead_letters import DEAD, default_name, letters_of
from command.test_failure_policy import ONE_BAD_LANE, accounts
from core.letters import Sample
from drainer.kafka.cluster import Cluster
from drainer.message import Message, Origin, SubMessage
from kafka.sender import write_letters
from kafka.topic import Topic


def died(offset: int, key: Any, error: str = "ValueError", **more: Any) -> Sample:
    """A sub-message of another topic, given up on."""
    sub = SubMessage(key, more.pop("payload", {"n": offset}))
    sub.message = Message(Origin("orders", "orders-id", 0), offset, b"k", b"v", 1, ())
    sub.index = 2
    return Sample(
        sub=sub, error={"ValueError": ValueError, "OSError": OSError}[error]("no"), **more
    )


@pytest.fixture
def dead(make_topic: MakeTopic) -> Topic:
    return make_topic(partitions=2)


def begin(command: Command, topic: str, *more: str, **options: object) -> Running:
    handler = f"{command.handlers}:OnTheLoop"
    what = ["-b", command.bootstrap, "--dead-letter-topic", topic, "--handler", handler]
    what += ["--yes", "--max-doubt", "0"]  # no bad message is taken for an outage
    return command.start("redrive", *what, *command.options(**options), *more)


def redrive(command: Command, topic: str, *more: str, code: int = 0, **options: object) -> Outcome:
    return begin(command, topic, *more, **options).ends(code)


def offsets(command: Command, mark: str = "done") -> list[int]:
    """Of the messages that were drained once."""
    return [line.place[1] for line in command.record.lines() if line.mark == mark]


def test_what_a_drain_gave_up_is_done_under_the_ids_that_it_had(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    command.drain(topic, *DEAD, code=6, bad="bad")
    ids = [letter.id for letter in letters_of(command, topic)]
    name = default_name(command, topic)
    outcome = redrive(command, name, "--json")
    done = [line for line in command.record.lines() if line.mark == "done" and line.attempt > 1]
    assert [line.id for line in done] == ids
    assert [line.place for line in done] == [(0, 0, 1), (0, 1, 0), (0, 2, 0)]
    assert [line.attempt for line in done] == [2, 2, 2]
    assert outcome.answer["left_alone"] == {}
    accounts(outcome.answer["messages"], read=3, done=3)
    assert f"Redrive dead letters of {name}" in outcome.err
    assert cluster.committed(f"drainer.redrive.{name}", name, [0]) == {0: 3}
    assert cluster.committed(command.group(topic), topic.name, [0]) == {0: 4}
    again = redrive(command, name, "--json")
    assert again.answer["status"] == "empty"


def test_filters_choose_and_what_was_not_meant_is_found_by_the_next_redrive(
    command: Command, dead: Topic
) -> None:
    letters = [died(n, f"doc-{n % 3}", "OSError" if n > 5 else "ValueError") for n in range(9)]
    write_letters(dead, letters)
    first = redrive(command, dead.name, "--sub-key", "doc-1", "--error", "valueerror", "--json")
    assert sorted(offsets(command)) == [1, 4]
    accounts(first.answer["messages"], read=9, done=2, pending=7)
    assert first.answer["left_alone"] == {"not asked for": 7}
    assert "those with sub-key doc-1 and error valueerror" in first.err
    assert "7 x not asked for" in first.err

    write_letters(dead, [died(9, "doc-0"), died(10, "doc-1")])
    second = redrive(command, dead.name, "--sub-key", "doc-0", "--sub-key", "doc-1", "--json")
    assert sorted(offsets(command)) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert second.answer["left_alone"] == {"not asked for": 3}
    lanes = [n for n in offsets(command, "begun") if n % 3 == 0]
    assert lanes == sorted(lanes)

    last = redrive(command, dead.name, "--json")
    assert sorted(offsets(command)) == list(range(11))
    accounts(last.answer["messages"], read=11, done=11, pending=0)


def outstanding(command: Command, topic: Topic, *more: str) -> list[tuple[int, bool]]:
    """The messages whose letters the list has, and whether it says that they were redriven."""
    answer = command(
        "dead", "list", "-b", topic.bootstrap, "--dead-letter-topic", topic.name, "--json", *more
    ).answer
    return sorted((each["message_offset"], each["redriven"]) for each in answer["newest"])


def test_the_list_has_what_is_outstanding(command: Command, dead: Topic) -> None:
    write_letters(dead, [died(n, key) for n, key in enumerate(["a", "b", "bad", "c"])])
    more = ("--sub-key", "b", "--sub-key", "bad", "--retries", "0")
    redrive(command, dead.name, *more, code=6, bad="bad")
    assert outstanding(command, dead) == [(0, False), (2, False), (3, False)]
    everything = [(0, False), (1, True), (2, False), (2, True), (3, False)]
    assert outstanding(command, dead, "--all") == everything
    listed = command("dead", "list", "-b", dead.bootstrap, "--dead-letter-topic", dead.name)
    assert f"{dead.name}: 3 dead letters outstanding, 2 redriven" in listed.err
    assert f"drainer.redrive.{dead.name} and {dead.name}.redrive.plan.json" in listed.err

    redrive(command, dead.name)
    assert outstanding(command, dead) == []
    (command.folder / f"{dead.name}.redrive.plan.json").unlink()
    assert outstanding(command, dead) == [], "the group knows as much"
    assert len(outstanding(command, dead, "--group", "of-somebody-else")) == 5
    named = ("dead", "list", "-b", dead.bootstrap, "--dead-letter-topic", dead.name)
    assert "does not exist" in command(*named, "--plan", "not-there.json", code=3).error


def test_letters_of_different_drains_are_not_redriven_together_unless_told(
    command: Command, dead: Topic
) -> None:
    write_letters(
        dead, [died(0, "a"), died(1, "b", group="billing"), died(2, "c", handler="mail:Send")]
    )
    dry = redrive(command, dead.name, "--dry-run", "--json", "--mixed", "--sub-key", "doc").answer
    assert (dry["status"], dry["offsets"]) == ("dry-run", 3)
    assert dry["redrive"]["letters"]["sub_keys"] == ["doc"]
    assert dry["failures"]["on_failure"] == "dead-letter"
    refused = redrive(command, dead.name, code=3)
    assert "1 of topic orders, group indexer, handler shop:Reindex" in refused.error
    assert "1 of topic orders, group billing, handler shop:Reindex" in refused.error
    assert "--mixed" in refused.hint
    assert command.left_behind == []
    assert not command.record.path.exists()

    listed = outstanding(command, dead, "--source", "indexer", "--source", "orders")
    assert listed == [(0, False), (2, False)]
    one = ("--source", "indexer", "--source", "shop:Reindex", "--group", "mine")
    outcome = redrive(command, dead.name, *one, "--plan", "mine.json")
    assert command.left_behind == ["mine.json"]
    assert "all letters come from topic orders, group indexer" in outcome.err
    assert "warning: the handler shop:Reindex gave these letters up" in outcome.err
    assert "those with source indexer, shop:Reindex" in outcome.err
    assert offsets(command) == [0]

    named = ("--group", "mine", "--plan", "mine.json")
    assert redrive(command, dead.name, *named, code=3).error
    redrive(command, dead.name, *named, "--mixed")
    assert sorted(offsets(command)) == [0, 1, 2]


def test_killed_it_is_resumed_from_its_plan(command: Command, dead: Topic) -> None:
    write_letters(
        dead, [*[died(n, f"doc-{n}") for n in range(60)], died(60, "other", reason="limit")]
    )
    more = ("--letter-reason", "failed", "-c", "4", *FAST)
    running = begin(command, dead.name, *more, pause_ms=5)
    command.wait_for(running, "done", 20)
    running.kill()
    (plan,) = command.folder.glob("*.plan.json")
    assert plan.name == f"{dead.name}.redrive.plan.json"
    outcome = command("resume", str(plan), "--yes", "--json", *command.options())
    assert set(offsets(command)) == set(range(60))
    accounts(outcome.answer["messages"], read=61, done=60, pending=1)
    assert outcome.answer["left_alone"] == {"not asked for": 1}
    assert "those with reason failed" in outcome.err
