"""Letters that are sent back or diverted by a drain that is killed: none is missing at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from command.conftest import DOCUMENTS
from command.process import Command, Running
from command.test_dead_letters import default_name, letters_of
from command.test_spark_chaos import spark_at_home
from drainer.letters.reading import read_letters
from kafka.topic import eventually
from letters.foreign_letters import Record, write

__all__ = ["spark_at_home"]
LETTERS = 400
KEYS = 5
FEW = 60  # that are enough to kill it
SPARK = ("--master", "local[2]")
HANDLER = f"""{DOCUMENTS}
    def handle(self, sub):
        self.note(sub.id.partition(":")[2], sub.payload["customer"])
"""
engines = pytest.mark.parametrize(
    "where", [(), pytest.param(SPARK, marks=pytest.mark.long)], ids=["here", "on Spark"]
)


def end(command: Command, topic: str) -> int:
    return sum(end for end, _ in command.cluster.log_ends(topic, (0,)).values())


def kill_at(running: Running, reached: Callable[[], bool]) -> None:
    eventually(lambda: reached() or not running.running, "enough are written", 120)
    assert running.running, running.err
    running.kill()


@pytest.mark.long
@engines
def test_letters_are_all_at_their_source_after_a_kill(
    command: Command, where: tuple[str, ...]
) -> None:
    source, dead, letters = command.topic(), command.topic(), list[Record]()
    place = [("kafka_dlt-original-topic", source.name.encode())]
    place.append(("kafka_dlt-original-partition", b"0"))
    for n in range(LETTERS):
        headers = [*place, ("kafka_dlt-original-offset", b"%d" % n)]
        letters.append(Record(b"k%d" % (n % KEYS), b"%d" % n, 0, headers))
    write(dead, letters)
    words = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name, "--to", "source", "--yes"]
    words += ["--plan", "plan.json", "--rate", "200/s", *where]
    kill_at(command.start("redrive", *words), lambda: end(command, source.name) > FEW)
    before = end(command, source.name)
    assert before < LETTERS

    command("resume", "plan.json", "--yes", "--rate", "none", *where)
    written = end(command, source.name)
    assert written < LETTERS + before
    sent = list(read_letters(command.cluster, source.name))
    assert {int(each.value or b"") for each in sent} == set(range(LETTERS))
    for key in {each.key for each in sent}:  # in their order, but for repeats after the kill
        numbers = [int(each.value or b"") for each in sent if each.key == key]
        begun = [number for place, number in enumerate(numbers) if number not in numbers[:place]]
        assert begun == sorted(begun)
    ids = {(each.value, dict(each.headers)["drainer.id"]) for each in sent}
    assert len(ids) == LETTERS, "a repeat has the same id"


@engines
def test_what_is_diverted_is_a_letter_or_done_after_a_kill(
    command: Command, tmp_path: Path, where: tuple[str, ...]
) -> None:
    values = [
        [{"id": f"{n % 5}-{i}", "customer": c} for i, c in enumerate((n % 3, 42, n % 2))]
        for n in range(LETTERS)
    ]
    topic = command.topic([*map(json.dumps, values)])
    handler, done = command.handler(HANDLER), tmp_path / "done"
    more = ["--divert", "payload.customer == 42", "--rate", "400/s", *where]
    dead = default_name(command, topic)

    def some_died() -> bool:
        return dead in command.cluster.topic_names() and end(command, dead) > FEW

    kill_at(command.begin(topic, *more, handler=handler, done=done), some_died)
    assert end(command, dead) < LETTERS
    outcome = command.resume(topic, "--rate", "none", "-o", "json", *where, done=done)

    assert outcome.answer["exit_code"] == 0
    subs = outcome.answer["sub_messages"]
    assert (subs["done"], subs["dead"]) == (2 * LETTERS, LETTERS)
    assert outcome.answer["diverted_by"] == {"payload.customer == 42": LETTERS}
    letters = Counter(letter.message_offset for letter in letters_of(command, topic))
    assert set(letters) == set(range(LETTERS))
    assert {letter.reason for letter in letters_of(command, topic)} == {"diverted"}
    ids = [line.split() for line in done.read_text().splitlines()]
    assert {place for place, _ in ids} == {f"0:{n}:{i}" for n in range(LETTERS) for i in (0, 2)}
    assert {customer for _, customer in ids} == {"0", "1", "2"}
    repeats = [sum(1 for _ in run) for _, run in groupby(sorted(place for place, _ in ids))]
    assert max(repeats) <= 2
