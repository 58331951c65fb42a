"""Letters of other tools through the command: listed, shown and redriven to a handler."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import pytest

from command.conftest import DOCUMENTS
from command.process import Command
from drainer.letters.reading import read_letters
from kafka.topic import eventually
from letters.foreign_letters import TOOLS, Record, recorded, write

HANDLER = f"""{DOCUMENTS}
    def handle(self, sub):
        if sub.message.topic == "orders":
            raise GiveUp("again")
        self.note(sub.id, sub.key, sub.payload["id"])
"""


def test_recorded_letters_of_three_tools_are_redriven_in_one_topic(
    command: Command, tmp_path: Path
) -> None:
    dead = command.topic(["somebody else's"])
    for tool in TOOLS:
        write(dead, recorded(tool))
    where = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name]
    listed = command("dead", "list", *where, "-o", "json").answer
    assert (listed["letters"], listed["foreign"]) == (6, 1)
    assert listed["by_reason"] == {"spring": 2, "streams": 2, "connect": 2}
    shown = command("dead", "show", "0:1", *where)
    assert "IllegalStateException: Listener failed; boom" in shown.out
    assert "orders/0/300[0]" in shown.out

    handler, done = command.handler(HANDLER), tmp_path / "done"
    words = [*where, "--handler", handler, "--set", f"done={done}", "--yes", "--mixed"]
    outcome = command("redrive", *words, "-o", "json", code=6)
    assert sorted(done.read_text().splitlines()) == ["sin:0:0:0 0 0", "sin:0:1:0 1 1"]
    # Of Spring's one is no JSON, and Connect's are not, which is why they died: dead again.
    assert outcome.answer["sub_messages"]["dead"] == 4
    again = command("dead", "list", *where, "-o", "json").answer
    assert again["outstanding"] == 4
    assert {each["redrives"] for each in again["newest"]} == {1}
    assert {each["topic"] for each in again["newest"]} == {"orders", "csrc"}


@pytest.mark.long
def test_names_of_headers_are_kept_in_the_plan(command: Command, tmp_path: Path) -> None:
    dead = command.topic()
    [record] = recorded("streams")[:1]
    place = [("x-topic", b"mine"), ("x-partition", b"0"), ("x-offset", b"5")]
    write(dead, [type(record)(record.key, record.value, record.timestamp, list(place))])
    where = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name]
    assert command("dead", "list", *where, "-o", "json").answer["letters"] == 0
    for name in ("topic", "partition", "offset"):
        where += ["--letter-header", f"{name}=x-{name}"]
    handler, done = command.handler(HANDLER), tmp_path / "done"
    command("redrive", *where, "--handler", handler, "--set", f"done={done}", "--yes")
    assert done.read_text() == "mine:0:5:0 0 0\n"
    assert '"topic": "x-topic"' in next(command.folder.glob("*.plan.json")).read_text()


def share(topic: str, offset: int, partition: int = 0) -> Record:
    """A letter of a share group, without its message."""
    place = {"topic": topic, "partition": partition, "offset": offset, "group": "workers"}
    headers = [(f"__dlq.errors.{name}", str(value).encode()) for name, value in place.items()]
    return Record(None, None, int(time() * 1000), headers)


@pytest.mark.long
@pytest.mark.parametrize(
    "engine",
    [(), pytest.param(("--master", "local[2]"), marks=pytest.mark.long)],
    ids=["here", "on Spark"],
)
def test_a_letter_that_only_names_its_message_has_it_read_where_it_was(
    command: Command, tmp_path: Path, engine: tuple[str, ...]
) -> None:
    source, dead = command.topic(partitions=2), command.topic()
    for partition in range(2):
        values = [f'{{"documents": [{{"id": "{partition}-{n}"}}]}}' for n in range(1500)]
        source.produce(values, partition=partition)
    source.delete_before(10, partition=1)
    places = [(1400, 0), (3, 0), (7, 1), (3, 0), (600, 0), (900, 1), (10, 1)]
    write(dead, [share(source.name, *place) for place in places])
    write(dead, [share("missing", 1), share(source.name, 5000), share(source.name, 0, 9)])
    where = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name]
    assert command("dead", "list", *where, "-o", "json").answer["letters"] == 10
    assert '"id": "0-3"' in command("dead", "show", "0:1", *where).out
    assert "retention or compaction deleted" in command("dead", "show", "0:2", *where).out

    handler, done = command.handler(HANDLER), tmp_path / "done"
    words = [*where, "--handler", handler, "--set", f"done={done}", "-o", "json", "--mixed"]
    answer = command("redrive", *words, "--yes", *engine, code=6).answer
    handled = ["0-1400", "0-3", "0-3", "0-600", "1-900", "1-10"]
    assert sorted(line.split()[1] for line in done.read_text().splitlines()) == sorted(handled)
    assert f"{source.name}:0:1400:0 0-1400 " in done.read_text()
    gone = "retention or compaction deleted its original"
    assert answer["left_alone"] == {gone: 1, "its original is not on this cluster": 3}

    copied = command.topic()
    words = [*where, "--to", copied.name, "--group", "copies", "--mixed", "--yes"]
    copying = command("redrive", *words, "--plan", "copies.json", code=6)
    assert "! Redriven, but 4 letters left alone" in copying.out
    copies = [record.value or b"" for record in read_letters(command.cluster, copied.name)]
    assert len(copies) == len(handled)
    assert sum(b'"0-1400"' in each for each in copies) == 1


@pytest.mark.long
def test_letters_go_to_their_source_as_they_were_and_no_further_than_allowed(
    command: Command,
) -> None:
    source, dead, parked = command.topic(partitions=2), command.topic(), command.topic()
    [one, *_] = recorded("spring")

    def letter(offset: int, topic: str, *more: tuple[str, bytes | None]) -> Record:
        place = {"topic": topic.encode(), "partition": b"1", "offset": str(offset).encode()}
        named = [(f"kafka_dlt-original-{name}", value) for name, value in place.items()]
        return Record(one.key, f"v{offset}".encode(), 1, [("trace", b"t"), *named, *more])

    letters = [letter(n, source.name) for n in range(3)]
    write(dead, [*letters, letter(9, source.name, ("drainer.redrives", b"3"))])
    write(dead, [letter(5, dead.name), letter(6, "missing")])
    words = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name, "--to", "source", "--mixed"]
    words += ["--parking-topic", parked.name]
    parked_at_source = [*words[:-1], source.name, "--yes"]
    assert "can't get its own letters" in command("redrive", *parked_at_source, code=2).err
    refused = command("redrive", *words, code=3)
    assert f"records appended to missing, {source.name} reach every group" in refused.err
    assert "newer records of these keys may already be there" in refused.err
    assert "add --yes" in refused.err
    outcome = command("redrive", *words, "--yes", "-o", "json", code=6)
    sent = list(read_letters(command.cluster, source.name))
    assert {record.partition for record in sent} == {1}
    assert [record.value for record in sent] == [b"v0", b"v1", b"v2"]
    assert [*sent[0].headers][:2] == [("trace", b"t"), ("drainer.topic", source.name.encode())]
    assert ("drainer.redrives", b"1") in sent[0].headers
    assert outcome.answer["sub_messages"]["dead"] == 1
    assert sum(outcome.answer["left_alone"].values()) == 2
    where = ["-b", dead.bootstrap, "--dead-letter-topic", parked.name, "-o", "json"]
    [again] = command("dead", "list", *where).answer["newest"]
    assert (again["topic"], again["redrives"]) == ("missing", 1)
    to_itself = command("redrive", *words[:4], "--to", dead.name, code=2)
    assert "can't get its own letters" in to_itself.err


@pytest.mark.long
def test_a_record_that_a_topic_does_not_take_stops_no_other(command: Command) -> None:
    small, dead = command.topic(config={"max.message.bytes": "2000"}), command.topic()
    place = [("dead-letter-topic", b"orders"), ("dead-letter-partition", b"0")]
    values = [b"a", os.urandom(5000), b"b"]
    write(
        dead,
        [
            Record(b"k", value, 1, [*place, ("dead-letter-offset", b"%d" % n)])
            for n, value in enumerate(values)
        ],
    )
    words = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name, "--to", small.name, "--yes"]
    outcome = command("redrive", *words, "-o", "json", code=6)
    assert [record.value for record in read_letters(command.cluster, small.name)] == [b"a", b"b"]
    counts = outcome.answer["sub_messages"]
    assert (counts["done"], counts["dead"]) == (2, 1)


@pytest.mark.long
def test_what_died_elsewhere_before_a_resume_counts_in_it(command: Command, tmp_path: Path) -> None:
    dead, parked = command.topic(), command.topic()
    place = [("dead-letter-topic", b"orders"), ("dead-letter-partition", b"0")]
    values = [b"not json", *[b'{"documents": [{"id": 1}]}'] * 40]
    numbered = enumerate(values)
    offset = "dead-letter-offset"
    write(dead, [Record(b"k", v, 0, [*place, (offset, b"%d" % n)]) for n, v in numbered])
    handler = command.handler(HANDLER.replace('== "orders"', '== "no"'))
    done = tmp_path / "done"
    words = ["-b", dead.bootstrap, "--dead-letter-topic", dead.name, "--handler", handler]
    words += ["--set", f"done={done}", "--plan", "plan.json", "--yes", "--rate", "20/s"]
    running = command.start("redrive", *words, "--parking-topic", parked.name)
    eventually(lambda: done.exists() and done.read_text().count("\n") > 5, "some are done", 60)
    running.kill()
    more = ["--set", f"done={done}", "--rate", "none", "-o", "json"]
    outcome = command(*command.resume_of("plan.json"), *more, code=6)
    assert outcome.answer["sub_messages"]["dead"] == 1
    assert len(list(read_letters(command.cluster, parked.name))) == 1
