"""``drainer redrive``: dead letters go to the handler again, and none is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from command.process import Command, Outcome, Running
from command.test_dead_letters import DEAD, default_name, letters_of
from command.test_failure_policy import ONE_BAD_LANE, accounts
from core.letters import Sample
from drainer.message import Message, Origin, SubMessage
from kafka.sender import write_letters
from kafka.topic import Topic


def died(offset: int, key: Any, error: str = "ValueError", **more: Any) -> Sample:
    """A sub-message of another topic, given up on."""
    sub = SubMessage(key, more.pop("payload", {"n": offset}))
    sub.message = Message(Origin("orders", "orders-id", 0), offset, b"k", b"v", 1, ())
    sub.index = 2
    raised = {"ValueError": ValueError, "OSError": OSError}[error]("no")
    return Sample(sub=sub, error=raised, **more)


@pytest.fixture
def dead(command: Command) -> Topic:
    return command.topic(partitions=2)


def begin(command: Command, topic: str, *more: str, **options: object) -> Running:
    handler = f"{command.handlers}:OnTheLoop"
    what = ["-b", command.bootstrap, "--dead-letter-topic", topic, "--handler", handler]
    what += ["--yes", "--tune", "max-doubt=0"]  # no bad message is taken for an outage
    return command.start("redrive", *what, *command.options(**options), *more)


def redrive(command: Command, topic: str, *more: str, code: int = 0, **options: object) -> Outcome:
    return begin(command, topic, *more, **options).ends(code)


def offsets(command: Command, mark: str = "done") -> list[int]:
    """Of the messages that were drained once."""
    return [line.place[1] for line in command.record.lines() if line.mark == mark]


def test_what_a_drain_gave_up_is_done_under_the_ids_that_it_had(command: Command) -> None:
    topic = command.topic(ONE_BAD_LANE)
    drained = command.drain(topic, *DEAD, code=6, bad="bad")
    ids = [letter.id for letter in letters_of(command, topic)]
    name = default_name(command, topic)
    brokers = command.cluster.settings.bootstrap_servers
    there = f"--dead-letter-topic {name} --bootstrap-server {brokers}"
    assert f"drainer dead list {there}" in drained.out
    assert f"drainer redrive {there} --handler" in drained.out
    outcome = redrive(command, name, "-o", "json")
    done = [line for line in command.record.lines() if line.mark == "done" and line.attempt > 1]
    assert [line.id for line in done] == ids
    assert [line.place for line in done] == [(0, 0, 1), (0, 1, 0), (0, 2, 0)]
    assert [line.attempt for line in done] == [2, 2, 2]
    assert outcome.answer["left_alone"] == {}
    accounts(outcome.answer["messages"], read=3, done=3)
    assert f"Redrive dead letters of {name}" in outcome.err
    assert command.cluster.committed(f"drainer.redrive.{name}", name, [0]) == {0: 4}, (
        "and its receipt"
    )
    assert command.cluster.committed(command.group(topic), topic.name, [0]) == {0: 4}
    again = redrive(command, name, "-o", "json")
    assert again.answer["status"] == "empty"


def test_filters_choose_and_the_next_redrive_finds_the_rest(command: Command, dead: Topic) -> None:
    letters = [died(n, f"doc-{n % 3}", "OSError" if n > 5 else "ValueError") for n in range(9)]
    write_letters(dead, letters)
    first = redrive(command, dead.name, "--sub-key", "doc-1", "--error", "valueerror", "-o", "json")
    assert sorted(offsets(command)) == [1, 4]
    accounts(first.answer["messages"], read=9, done=2, pending=7)
    assert list(first.answer["left_alone"].values()) == [7]
    assert "those with sub-key doc-1 and error valueerror" in first.err

    write_letters(dead, [died(9, "doc-0")])
    last = redrive(command, dead.name, "-o", "json")
    assert sorted(offsets(command)) == list(range(10))
    accounts(last.answer["messages"], read=8, done=8, pending=0)
    lanes = [n for n in offsets(command, "begun") if n % 3 == 0]
    assert lanes == sorted(lanes)


def outstanding(command: Command, topic: Topic, *more: str) -> list[tuple[int, bool]]:
    """The messages whose letters the list has, and whether they are listed as redriven."""
    where = ("-b", topic.bootstrap, "--dead-letter-topic", topic.name)
    answer = command("dead", "list", *where, "-o", "json", *more).answer
    return sorted((each["message_offset"], each["redriven"]) for each in answer["newest"])


@pytest.mark.long
def test_the_list_has_what_is_outstanding(command: Command, dead: Topic) -> None:
    write_letters(dead, [died(n, key) for n, key in enumerate(["a", "b", "bad", "c"])])
    more = ("--sub-key", "b", "--sub-key", "bad", "--retries", "0")
    redrive(command, dead.name, *more, code=6, bad="bad")
    assert outstanding(command, dead) == [(0, False), (2, False), (3, False)]
    everything = [(0, False), (1, True), (2, False), (2, True), (3, False)]
    assert outstanding(command, dead, "--all") == everything
    listed = command("dead", "list", "-b", dead.bootstrap, "--dead-letter-topic", dead.name)
    assert f"{dead.name}: 3 dead letters outstanding, 2 redriven" in listed.out
    assert f"as recorded by group drainer.redrive.{dead.name}" in listed.out

    redrive(command, dead.name)
    assert outstanding(command, dead) == []
    (command.folder / f"{dead.name}.redrive.plan.json").unlink()
    assert outstanding(command, dead) == [], "the group knows as much"
    assert len(outstanding(command, dead, "--group", "of-somebody-else")) == 5


@pytest.mark.long
def test_letters_of_different_drains_are_redriven_together_only_on_request(
    command: Command, dead: Topic
) -> None:
    others = [died(1, "b", group="billing"), died(2, "c", handler="mail:Send")]
    write_letters(dead, [died(0, "a"), *others])
    as_json = ("--dry-run", "-o", "json", "--mixed", "--sub-key", "doc")
    looked = redrive(command, dead.name, *as_json)
    assert "newer state of these sub-keys may exist" in looked.err
    dry = looked.answer
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
    assert "2 did not match the filter" in outcome.out
    assert "all letters come from topic orders, group indexer" in outcome.err
    assert "warning: the handler shop:Reindex gave these letters up" in outcome.err
    assert "those with source indexer, shop:Reindex" in outcome.err
    assert offsets(command) == [0]

    named = ("--group", "mine", "--plan", "mine.json")
    assert redrive(command, dead.name, *named, code=3).error
    redrive(command, dead.name, *named, "--mixed")
    assert sorted(offsets(command)) == [0, 1, 2]


@pytest.mark.long
def test_a_killed_redrive_is_not_repeated_with_another_plan(command: Command, dead: Topic) -> None:
    write_letters(dead, [died(n, f"doc-{n}", ["OSError", "ValueError"][n % 2]) for n in range(60)])
    running = begin(command, dead.name, "--error", "OSError", "-c", "4", pause_ms=5)
    command.wait_for(running, "done", 10)
    running.kill()
    (plan,) = command.folder.glob("*.plan.json")
    begun = len(offsets(command, "begun"))
    (command.home / "other").mkdir()  # a folder that no redrive has a plan in
    other = ("--plan", str(command.home / "other" / "other.json"))
    refused = redrive(command, dead.name, *other, code=3)
    assert "has not ended" in refused.error
    assert f"drainer resume {plan}" in refused.hint
    assert "--accept-repeats" in refused.hint
    assert len(offsets(command, "begun")) == begun
    listed = command("dead", "list", "-b", dead.bootstrap, "--dead-letter-topic", dead.name)
    assert "according to its receipt, a redrive has not ended: its progress is in" in listed.err
    assert f"in {plan} on " in listed.err

    command(*command.resume_of(plan), *command.options())
    assert sorted(set(offsets(command))) == list(range(0, 60, 2))
    repeated = len(offsets(command)) - 30
    redrive(command, dead.name, *other)
    assert sorted(set(offsets(command))) == list(range(60))
    assert len(offsets(command)) == 60 + repeated, "nothing of what the resume did"


@pytest.mark.long
def test_a_killed_redrive_is_repeated_with_another_plan_if_that_is_accepted(
    command: Command, dead: Topic
) -> None:
    write_letters(dead, [died(n, f"doc-{n}") for n in range(10)])
    # It is killed before its first plan, so neither the plan nor the group has what it did.
    running = begin(command, dead.name, "-c", "1", pause_ms=50)
    command.wait_for(running, "done", 2)
    running.kill()

    redrive(command, dead.name, "--plan", "other.json", "--accept-repeats")
    assert set(offsets(command)) == set(range(10))
    assert len(offsets(command)) > 10
