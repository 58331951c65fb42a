"""``drainer dead``: letters listed and shown, and what is refused."""

from __future__ import annotations

import pytest

from command.process import Command
from core.letters import Sample
from kafka.sender import write_letters
from kafka.topic import Topic

PARTITIONS = 2


@pytest.fixture
def dead(command: Command) -> Topic:
    return command.topic(partitions=PARTITIONS)


def where(topic: Topic) -> list[str]:
    return ["-b", topic.bootstrap, "--dead-letter-topic", topic.name]


def night() -> list[Sample]:
    """Ten letters of one hot document and some others, a second apart."""
    return [
        Sample(
            "doc-hot" if n % 2 else f"doc-{n}",
            payload={"n": n},
            error=TimeoutError("db-1 took too long") if n % 5 == 0 else ValueError("no [such] doc"),
            reason="limit" if n == 9 else "failed",
            time=f"2026-03-14T18:02:{n:02}.000+00:00",
        )
        for n in range(10)
    ]


def test_letters_are_counted_filtered_and_listed(command: Command, dead: Topic) -> None:
    write_letters(dead, night())
    dead.produce(["not ours"], partition=1)
    outcome = command("dead", "list", *where(dead), "--limit", "3")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert outcome.err.startswith("warning: 1 record of")
    assert f"{dead.name}: 10 dead letters of 1 sub-message outstanding" in lines
    assert "8 error ValueError" in lines
    assert "5 sub-key doc-hot" in lines
    times = [line.split()[1] for line in lines if "orders/2/104[1]" in line]
    assert times == [f"2026-03-14T18:02:0{n}.000+00:00" for n in (9, 8, 7)]

    filters = ("--sub-key", "doc-hot", "--error", "timeouterror: DB-1", "--letter-reason", "failed")
    answer = command("dead", "list", *where(dead), *filters, "-o", "json").answer
    assert (answer["letters"], answer["matching"], answer["foreign"]) == (10, 1, 1)
    assert [letter["sub_keys"] for letter in answer["newest"]] == [["doc-hot"]]


def test_a_topic_without_letters_gets_no_tick_and_its_dead_letter_topics_are_named(
    command: Command, dead: Topic
) -> None:
    dead.produce(["a", "b"])
    letters = [Topic(dead.bootstrap, f"{dead.name}.{group}.dead") for group in ("b", "a")]
    other = Topic(dead.bootstrap, f"{dead.name}x.a.dead")

    outcome = command("dead", "list", *where(dead))

    headline = f"no dead letters in {dead.name}: none of its records is one"
    assert outcome.out.splitlines()[0] == headline
    meant = " or ".join(topic.name for topic in reversed(letters))
    assert outcome.err.endswith(f"hint: Did you mean {meant}?\n")
    for topic in (*letters, other):
        topic.discard()


def test_a_letter_that_the_list_has_is_shown_whole(command: Command, dead: Topic) -> None:
    write_letters(
        dead, [Sample(payload={"a": {"b": [1]}}, headers=[("trace", b"\xff"), ("none", None)])]
    )
    listed = command("dead", "list", *where(dead), "-o", "json").answer["newest"][0]
    assert listed.pop("redriven") is False
    place = f"{listed['partition']}:{listed['offset']}"
    outcome = command("dead", "show", place, *where(dead))
    for words in (
        "of orders/2/104[1]",
        "ValueError: no such document",
        "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1",
        "shop:Reindex",
        "3 attempts",
        r"trace: b'\xff'",
        '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}\n',
    ):
        assert words in outcome.out
    shown = command("dead", "show", place, *where(dead), "-o", "json").answer
    assert shown["payload"] == {"a": {"b": [1]}}
    assert shown["message"]["headers"] == [["trace", {"base64": "/w=="}], ["none", None]]
    assert {name: shown[name] for name in listed} == listed


def test_what_is_not_there_is_refused(command: Command, dead: Topic) -> None:
    missing = ["-b", dead.bootstrap, "--dead-letter-topic", f"{dead.name}x"]
    refused = command("dead", "list", *missing, code=3)
    assert "does not exist" in refused.error
    assert dead.name in refused.hint
    assert "no record at" in command("dead", "show", "0:99", *where(dead), code=3).error
    assert "PARTITION:OFFSET" in command("dead", "show", "17", *missing, code=2).error
