"""Rules of a drain, from the command line: what they leave out, over kills and resumes too."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter

from command.process import Command
from command.record import every_place

KEYS = ("cold-1", "cold-2", "hot", "odd-1", "odd-2")


def values(count: int) -> list[str]:
    """Four operations a message, half of them on one document."""
    chance = random.Random(5)
    return [
        json.dumps([chance.choice((*KEYS, "hot", "hot", "hot")) for _ in range(4)])
        for _ in range(count)
    ]


def keys_of(messages: list[str]) -> Counter[str]:
    return Counter(key for value in messages for key in json.loads(value))


def places_of(messages: list[str], *keys: str) -> set[tuple[int, int, int]]:
    return {
        place for place in every_place(messages) if json.loads(messages[place[1]])[place[2]] in keys
    }


HOT, ODD = "sub_key == 'hot'", "key =~ 'odd-.*'"
RULES = ("--skip", HOT, "--skip", ODD)


def test_what_rules_leave_out_is_not_handled_and_is_accounted_for(command: Command) -> None:
    messages = values(200)
    count = keys_of(messages)
    topic = command.topic(messages)
    outcome = command.drain(topic, *RULES, "-o", "json")
    odd = count["odd-1"] + count["odd-2"]
    by_rule = {HOT: count["hot"], ODD: odd}
    assert outcome.answer["skipped_by"] == by_rule
    assert outcome.answer["sub_messages"]["skipped"] == sum(by_rule.values())
    assert outcome.answer["undecided"] == {}
    assert set(command.record.done()) == places_of(messages, "cold-1", "cold-2")
    assert command.committed(topic) == {0: 200}
    plan = json.loads(command.plan(topic).read_text())
    assert plan["unhandled"]["skipped_by"] == by_rule
    assert plan["failures"]["skip"] == list(by_rule)
    shown = command("plan", "show", str(command.plan(topic)))
    assert f"{count['hot']:,} by {HOT}" in shown.out + shown.err


A, B = "key == 'a'", "key == 'b'"


def test_a_resume_takes_its_rules_from_the_plan_or_from_its_options(command: Command) -> None:
    messages = ['["a"]', '["gate"]', '["a"]', '["b"]', '["c"]']
    topic = command.topic(messages)
    running = command.begin(
        topic, "--skip", A, "-c", "1", "--tune", "grace=0s", gate=command.gate, gated="gate"
    )
    command.wait_for(running, "begun", 1)
    running.signal(signal.SIGINT)
    running.ends(4)
    plan = str(command.plan(topic))
    shown = command("plan", "show", plan, "-o", "json").answer
    assert shown["unhandled"]["skipped_by"] == {A: 2}

    without = command.resume(topic, "--skip", "none", "--dry-run", "-o", "json")
    assert without.answer["failures"]["skip"] == []
    outcome = command.resume(topic, "--skip", B, "-o", "json")
    assert outcome.answer["skipped_by"] == {A: 2, B: 1}
    assert {place[1] for place in command.record.done()} == {1, 4}
    assert A not in outcome.err.split("Resume the drain")[1].split("✓")[0]
