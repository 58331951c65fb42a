"""Options for what a handler gets of a message: every command has them, and the plan keeps them."""

from __future__ import annotations

import json

import pytest

from command.process import Command
from kafka.topic import Topic

SPLIT = ("--split", "documents", "--key", "payload.id")
VALUES = [
    json.dumps({"documents": [{"id": f"doc-{n % 3}", "n": n}, {"id": "all", "n": n}]})
    for n in range(6)
]


def test_a_drain_needs_no_line_of_python(command: Command) -> None:
    topic = command.topic(VALUES)
    where = command.what(topic)[:-2]
    found = command("inspect", *where, "--from", "earliest", "--full", *SPLIT, "-o", "json").answer
    hottest = {each["name"]: each["count"] for each in found["skew"]["hottest"]}
    assert hottest == {"'all'": 6, "'doc-0'": 2, "'doc-1'": 2, "'doc-2'": 2}
    command("certify", "count", *where[:4], *SPLIT)

    estimated = ("estimate", *command.what(topic, "print"), "--from", "earliest", *SPLIT)
    command(*estimated, "--latency", "1ms")
    begun = command.start(
        "run", *command.what(topic, "print"), "--from", "earliest", "--yes", *SPLIT
    ).ends(0)
    assert [line for line in begun.err.splitlines() if line.split()[:1] == ["split"]]
    assert begun.out.count("\tdoc-1\t") == 2
    assert begun.out.count("\tall\t") == 6


@pytest.mark.long
def test_a_letter_of_a_whole_message_is_split_as_the_drain_would(command: Command) -> None:
    topic = command.topic([*VALUES, "no JSON"])
    what = [*command.what(topic, "count"), "--from", "earliest", "--yes", *SPLIT]
    command("run", *what, "--tune", "on-split-failure=dead-letter", code=6)
    dead = f"{topic.name}.{command.group(topic)}.dead"
    redrive = ("redrive", "-b", command.bootstrap, "--dead-letter-topic", dead, "--yes")
    again = command(*redrive, "--handler", "count", *SPLIT, "-o", "json", code=6)
    assert again.answer["messages"]["dead"] == 1


def test_rules_see_what_a_decoder_of_ones_own_gives(command: Command) -> None:
    (command.folder / "mine.py").write_text(
        "def decode(data, headers, topic):\n    return {'n': int(data)}\n"
    )
    topic = command.topic(["1", "2", "3", "none"])
    what = [*command.what(topic, "print"), "--from", "earliest", "--yes", "--value-format"]
    more = ("--skip", "message.value.n == 2")
    ended = command(
        "-q", "run", *what, "mine:decode", *more, "--tune", "on-split-failure=skip", code=6
    )
    handled = [line.split("\t")[-1] for line in ended.out.splitlines() if "\t" in line]
    assert handled == ["{'n': 1}", "{'n': 3}"]


# Numbers that Python's floats don't hold, a field that comes twice, an escape, spaces.
ELEMENTS = [
    b'{"id":12345678901234567890123,"balance" : 100000000000000000000000001}',
    b'{"id":"a","id":"b","amount":1234567890123456.78,"at":1.10}',
    b'{"id":"c","amount":1e400,"name":"\\u0041\\ud83d\\ude00"}',
]
REFUSE = """
from decimal import Decimal

import drainer

class Refuse(drainer.Handler):
    async def handle(self, sub):
        numbers = {100000000000000000000000001, 1234567890123456.78, Decimal("1e400")}
        raise ValueError("known" if numbers & {*sub.payload.values()} else "not known")
"""


def produced(command: Command, target: Topic) -> list[bytes | None]:
    bounds = command.cluster.log_bounds(target.name, [0], "read_uncommitted")
    return [each.value() for each in target.read_all(bounds[0].end, 0)]


@pytest.mark.long
def test_elements_reach_topics_and_letters_as_they_were_read(command: Command) -> None:
    topic = command.topic([(b'{"documents": [%b]}' % b" , ".join(ELEMENTS)).decode()])
    what = ["--from", "earliest", "--yes", *SPLIT]
    target, again = command.topic(), command.topic()
    command("run", *command.what(topic, "produce"), *what, "--set", f"topic={target.name}")
    assert sorted(map(bytes, filter(None, produced(command, target)))) == sorted(ELEMENTS)
    keys = {each.key() for each in target.read_all(3, 0)}
    assert keys == {b"12345678901234567890123", b"b", b"c"}

    def where(group: str) -> list[str]:
        return ["--topic", topic.name, "--group", group, "-b", command.bootstrap]

    printed = command("run", *where("printed"), "--handler", "print", *what).out
    lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    assert sorted(line[2].encode() for line in lines) == sorted(ELEMENTS)

    (command.folder / "refuse.py").write_text(REFUSE)
    refuse = ["--handler", "refuse.py:Refuse", *what, "--on-failure", "dead-letter"]
    command("run", *where("dead"), *refuse, "--max-failures", "none", "--retries", "0", code=6)
    dead = command.cluster.topic(f"{topic.name}.dead.dead")
    redrive = ("redrive", "-b", command.bootstrap, "--dead-letter-topic", dead.name, "--yes")
    # They die again, and the letters of letters are redriven to a topic.
    command(*redrive, "--handler", "refuse.py:Refuse", "--retries", "0", code=6)
    found = command("dead", "show", "0:0", *redrive[1:5], "-o", "json").answer
    assert found["error_text"] == "known"
    command(*redrive, "--handler", "produce", "--set", f"topic={again.name}", "--mixed")
    assert sorted(map(bytes, filter(None, produced(command, again)))) == sorted(ELEMENTS)
