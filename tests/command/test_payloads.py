"""Options for what a handler gets of a message: every command has them, and the plan keeps them."""

from __future__ import annotations

import json

from command.process import Command

SPLIT = ("--split", "documents", "--split-key", "id")
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


def test_a_letter_of_a_whole_message_is_split_as_the_drain_would(command: Command) -> None:
    topic = command.topic([*VALUES, "no JSON"])
    what = [*command.what(topic, "count"), "--from", "earliest", "--yes", *SPLIT]
    command("run", *what, "--on-split-failure", "dead-letter", code=6)
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
    more = ("--skip", "message.value.n == 2", "-q")
    ended = command("run", *what, "mine:decode", *more, "--on-split-failure", "skip", code=6)
    handled = [line.split("\t")[-1] for line in ended.out.splitlines() if "\t" in line]
    assert handled == ["{'n': 1}", "{'n': 3}"]
