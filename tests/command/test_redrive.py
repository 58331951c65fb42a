"""``drainer redrive``: dead letters go to the handler again, and none is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command.process import FAST, Command, Outcome, Running
from command.test_dead_letters import DEAD, default_name, letters_of
from command.test_failure_policy import ONE_BAD_LANE, accounts
from core.letters import Sample
from drainer.kafka.settings import ClientSettings
from drainer.message import Message, Origin, SubMessage
from kafka.sender import sending, write_letters
from kafka.topic import Topic

READS = "read_committed"


def died(offset: int, key: Any, error: str = "ValueError", **more: Any) -> Sample:
    """A sub-message of another topic, given up on."""
    sub = SubMessage(key, more.pop("payload", {"n": offset}))
    sub.message = Message(Origin("orders", "orders-id", 0), offset, b"k", b"v", 1, ())
    sub.index = 2
    return Sample(
        sub=sub, error={"ValueError": ValueError, "OSError": OSError}[error]("no"), **more
    )


@pytest.fixture
def dead(command: Command) -> Topic:
    return command.topic(partitions=2)


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


def test_what_a_drain_gave_up_is_done_under_the_ids_that_it_had(command: Command) -> None:
    topic = command.topic(ONE_BAD_LANE)
    command.drain(topic, *DEAD, code=6, bad="bad")
    ids = [letter.id for letter in letters_of(command, topic)]
    name = default_name(command, topic)
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


def test_filters_choose_and_what_was_not_meant_is_found_by_the_next_redrive(
    command: Command, dead: Topic
) -> None:
    letters = [died(n, f"doc-{n % 3}", "OSError" if n > 5 else "ValueError") for n in range(9)]
    write_letters(dead, letters)
    first = redrive(command, dead.name, "--sub-key", "doc-1", "--error", "valueerror", "-o", "json")
    assert sorted(offsets(command)) == [1, 4]
    accounts(first.answer["messages"], read=9, done=2, pending=7)
    assert first.answer["left_alone"] == {"not asked for": 7}
    assert "those with sub-key doc-1 and error valueerror" in first.err

    write_letters(dead, [died(9, "doc-0"), died(10, "doc-1")])
    second = redrive(command, dead.name, "--sub-key", "doc-0", "--sub-key", "doc-1", "-o", "json")
    assert sorted(offsets(command)) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert second.answer["left_alone"] == {"not asked for": 3}
    lanes = [n for n in offsets(command, "begun") if n % 3 == 0]
    assert lanes == sorted(lanes)

    last = redrive(command, dead.name, "-o", "json")
    assert sorted(offsets(command)) == list(range(11))
    accounts(last.answer["messages"], read=3, done=3, pending=0)


def outstanding(command: Command, topic: Topic, *more: str) -> list[tuple[int, bool]]:
    """The messages whose letters the list has, and whether it says that they were redriven."""
    answer = command(
        "dead",
        "list",
        "-b",
        topic.bootstrap,
        "--dead-letter-topic",
        topic.name,
        "-o",
        "json",
        *more,
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
    assert f"{dead.name}: 3 dead letters outstanding, 2 redriven" in listed.out
    assert f"as recorded by group drainer.redrive.{dead.name}" in listed.out

    redrive(command, dead.name)
    assert outstanding(command, dead) == []
    (command.folder / f"{dead.name}.redrive.plan.json").unlink()
    assert outstanding(command, dead) == [], "the group knows as much"
    assert len(outstanding(command, dead, "--group", "of-somebody-else")) == 5


def test_letters_of_different_drains_are_not_redriven_together_unless_told(
    command: Command, dead: Topic
) -> None:
    write_letters(
        dead, [died(0, "a"), died(1, "b", group="billing"), died(2, "c", handler="mail:Send")]
    )
    dry = redrive(
        command, dead.name, "--dry-run", "-o", "json", "--mixed", "--sub-key", "doc"
    ).answer
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


def other_plan(command: Command) -> Path:
    """A folder that no redrive has a plan in."""
    folder = command.folder.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    return folder / "other.json"


def test_what_can_not_be_redriven_is_skipped_and_holds_nothing_back(
    command: Command, dead: Topic
) -> None:
    lost = SubMessage("big", b"no payload")
    lost.message, lost.index = Message(Origin("orders", "orders-id", 0), 99, b"k", b"v", 1, ()), 0
    write_letters(dead, [died(n, "doc") for n in range(5)])
    with sending(ClientSettings.load(dead.bootstrap), dead.name) as sender:
        sender.send(Sample(sub=lost).letter().without_payload())
        assert sender.all_reported() == [None]
    dead.produce(["not a letter"] * 26)
    write_letters(dead, [died(n, "doc") for n in range(5, 10)])

    first = redrive(command, dead.name, "-o", "json")
    accounts(first.answer["messages"], read=37, done=10, skipped=27)
    assert set(first.answer["skipped_for"].values()) == {1, 26}
    assert first.answer["left_alone"] == {}
    again = redrive(command, dead.name, "--plan", str(other_plan(command)), "-o", "json")

    assert again.answer["status"] == "empty"
    assert sorted(offsets(command)) == list(range(10))
    ends = {n: log.end for n, log in command.cluster.log_bounds(dead.name, [0, 1], READS).items()}
    ends[0] -= 1  # the last receipt
    assert command.cluster.committed(f"drainer.redrive.{dead.name}", dead.name, [0, 1]) == ends

    assert outstanding(command, dead) == [(99, False)], "a person has to look after it"

    with sending(ClientSettings.load(dead.bootstrap), dead.name) as sender:
        other = Sample(payload=7).letter()
        header = ("drainer-dead-letter/99", other.headers[0][1])
        sender.send(replace(other, headers=(header,)))
        assert sender.all_reported() == [None]
    later = redrive(command, dead.name, "--plan", str(other_plan(command)), "-o", "json")
    assert later.answer["skipped_for"] == {}, "another version of drainer may read it"
    assert "another version" in str(later.answer["left_alone"])


def test_a_redrive_is_known_when_its_group_has_expired(command: Command, dead: Topic) -> None:
    write_letters(dead, [died(n, "doc") for n in range(5)])
    redrive(command, dead.name, "-o", "json")
    command.cluster.delete_group(f"drainer.redrive.{dead.name}")  # as brokers do after some days
    write_letters(dead, [died(n, "doc") for n in range(5, 7)])

    redrive(command, dead.name, "--plan", str(other_plan(command)), "-o", "json")

    assert sorted(offsets(command)) == list(range(7)), "each of them once"


def test_a_killed_redrive_is_not_repeated_from_elsewhere_without_a_word(
    command: Command, dead: Topic
) -> None:
    write_letters(dead, [died(n, f"doc-{n}", ["OSError", "ValueError"][n % 2]) for n in range(60)])
    running = begin(command, dead.name, "--error", "OSError", "-c", "4", *FAST, pause_ms=5)
    command.wait_for(running, "done", 10)
    running.kill()
    (plan,) = command.folder.glob("*.plan.json")
    begun = len(offsets(command, "begun"))

    other = ("--plan", str(other_plan(command)))
    refused = redrive(command, dead.name, *other, code=3)
    assert "has not ended" in refused.error
    assert f"drainer resume {plan}" in refused.hint
    assert "--accept-repeats" in refused.hint
    assert len(offsets(command, "begun")) == begun
    listed = command("dead", "list", "-b", dead.bootstrap, "--dead-letter-topic", dead.name)
    assert f"a redrive has not ended: its progress is in {plan} on " in listed.err

    command("resume", str(plan), "--yes", *command.options())
    assert sorted(set(offsets(command))) == list(range(0, 60, 2))
    repeated = len(offsets(command)) - 30
    redrive(command, dead.name, *other)
    assert sorted(set(offsets(command))) == list(range(60))
    assert len(offsets(command)) == 60 + repeated, "nothing of what the resume did"


def test_a_killed_redrive_is_repeated_from_elsewhere_if_that_is_accepted(
    command: Command, dead: Topic
) -> None:
    write_letters(dead, [died(n, f"doc-{n}", ["OSError", "ValueError"][n % 2]) for n in range(20)])
    running = begin(command, dead.name, "--error", "ValueError", "-c", "1", *FAST, pause_ms=20)
    command.wait_for(running, "done", 2)
    running.kill()

    other = ("--plan", str(other_plan(command)))
    redrive(command, dead.name, *other, "--accept-repeats", "--error", "OSError")
    assert set(range(0, 20, 2)) <= set(offsets(command))
    redrive(command, dead.name, *other)
    assert set(offsets(command)) == set(range(20))
    repeats = [n for n in set(offsets(command)) if offsets(command).count(n) > 1]
    assert repeats, "it said so"
    assert not [n for n in repeats if n % 2 == 0], "what ended was known"
