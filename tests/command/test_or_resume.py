"""The same command again and again, as a scheduler starts it."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from command.conftest import distinct, operations
from command.process import Command, Running

DEAD = ("--on-failure", "dead-letter", "--retries", "0")


@pytest.fixture
def again(command: Command) -> Again:
    return Again(command)


class Again:
    """One command that is started again and again, for a new topic."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.topic = command.topic(operations(40))

    def __call__(self, *more: str, **options: Any) -> Running:
        words = ("--or-resume", "-c", "4", "-o", "json")
        return self.command.begin(self.topic, *words, *more, **options)


def test_brokers_that_do_not_answer_are_tried_again_by_a_scheduler(command: Command) -> None:
    what = ("--topic", "t", "--group", "g", "--handler", "print", "-b", "127.0.0.1:1", "--yes")
    refused = command("run", *what, code=3)
    tried = command("run", *what, "--or-resume", code=4)
    assert tried.error == refused.error
    assert tried.hint == refused.hint


def test_a_group_in_use_is_tried_again_by_a_scheduler(command: Command) -> None:
    topic = command.topic(operations(4))
    member = topic.live_member(command.group(topic), "indexer-7")
    refused, tried = command.drain(topic, code=3), command.drain(topic, "--or-resume", code=4)
    member.close()
    assert "indexer-7" in tried.err
    assert refused.err.rpartition("hint: ")[2] == tried.err.rpartition("hint: ")[2]
    command.drain(topic, "--or-resume")
    command.ensure_drained(topic)


def test_it_begins_goes_on_after_a_kill_and_then_does_nothing_with_the_same_exit_code(
    again: Again, command: Command
) -> None:
    killed = again(pause_ms=20)
    command.wait_for(killed, "done", 10)
    killed.kill()
    again.topic.produce(operations(5))

    on = again(pause_ms=20).ends(0).answer

    command.ensure_drained(again.topic)
    assert (on["status"], on["ended_before"]) == ("done", None)
    before, done = command.plan(again.topic).read_bytes(), command.record.done()
    over = again(pause_ms=20).ends(0)
    assert over.answer["ended_before"] == on["history"][-1]["at"]
    same = ("status", "exit_code", "messages", "sub_messages", "partitions", "history", "conserved")
    assert {n: over.answer[n] for n in same} == {n: on[n] for n in same}
    assert "this command did nothing" in over.err
    assert (command.plan(again.topic).read_bytes(), command.record.done()) == (before, done)
    events = command("plan", "history", command.plan(again.topic).name, "-o", "json").answer
    who = [(each["what"], each["by"].partition("@")[0]) for each in events["history"]]
    user = getpass.getuser()
    assert who == [("begun", user), ("resumed", user), ("ended", user)]


def test_a_handler_that_the_plan_does_not_have_is_refused(again: Again, command: Command) -> None:
    killed = again(pause_ms=20)
    command.wait_for(killed, "done", 10)
    killed.kill()
    other = again("--handler", "count", pause_ms=20).ends(3)
    assert "the plan of a drain with handler " in other.error
    assert other.error.endswith(", not count")
    words = other.hint.partition("`drainer ")[2].partition("`")[0].split()
    handler = command.what(again.topic)[-2:]
    command(*words, *handler, "--yes", *command.options())
    command.ensure_drained(again.topic)


def test_dead_letters_can_be_accepted_and_are_still_counted(command: Command) -> None:
    topic = command.topic(distinct(20))
    bad: dict[str, Any] = {"bad": "3,7"}
    accept = ("--or-resume", "-o", "json", "--accept-dead-letters")

    first = command.drain(topic, *DEAD, *accept, **bad)
    repeated = [command.drain(topic, *DEAD, *accept[:3], code=6, **bad)]
    repeated.append(command.drain(topic, *DEAD, *accept, **bad))

    assert "Drained, with 2 dead letters" in first.err
    for each, code in ((first, 0), *zip(repeated, (6, 0), strict=True)):
        assert (each.answer["status"], each.answer["exit_code"]) == ("done", code)
        assert (each.answer["sub_messages"]["done"], each.answer["sub_messages"]["dead"]) == (18, 2)
    assert len(command.record.done()) == 18


def test_what_failed_without_a_letter_is_never_accepted(command: Command) -> None:
    topic = command.topic(distinct(20))
    skips = ("--on-failure", "skip", "--retries", "0", "--accept-dead-letters", "-o", "json")
    assert command.drain(topic, *skips, code=6, bad="3").answer["sub_messages"]["failed"] == 1
