"""Drains of Avro, Protobuf and JSON Schema through the command, with schemas of a registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from command.process import Command
from drainer.kafka.sample import windows_over
from drainer.letters.reading import read_letters
from drainer.operations.look import MESSAGES
from letters.foreign_letters import Record, write
from payloads.registry import AT, Registry, Serialisers, running

HANDLER = """
import sys

def handle(sub):
    # In one write, because handlers of several threads print at once.
    sys.stdout.write(f"got {sub.key} {sub.payload}\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running() as registry:
        yield registry


def order(number: int) -> dict[str, object]:
    return {"id": f"o-{number}", "at": AT, "to": {"zip": str(number)}}


def test_avro_is_split_inspected_and_drained_and_what_is_not_is_dead(
    command: Command, registry: Registry
) -> None:
    topic = command.topic()
    write = Serialisers(registry.url, topic.name)
    topic.produce([write.avro(order(n)) for n in range(3)])
    topic.produce([b"\0\0\0\0\x63none", b"{}"])
    formats = ("--value-format", "avro", "--key", "payload.id", "--registry", registry.url)
    what = [*command.what(topic, command.handler(HANDLER)), "--from", "earliest"]
    seen = command("inspect", *what[:-4], *what[-2:], *formats, "--full", "-o", "json").answer
    assert {each["name"] for each in seen["skew"]["hottest"]} == {"'o-0'", "'o-1'", "'o-2'"}
    words = ["--yes", *formats, "--skip", "message.value.to.zip == '1'", "--max-failures", "9"]
    ended = command("run", *what, *words, "--tune", "on-split-failure=dead-letter", code=6)
    assert [line for line in ended.out.splitlines() if line.startswith("got")] == [
        f"got o-{n} {order(n)}" for n in (0, 2)
    ]
    assert registry.url in ended.err
    letters = f"{topic.name}.{command.group(topic)}.dead"
    dead = ["-b", command.bootstrap, "--dead-letter-topic", letters]
    shown = command("dead", "list", *dead, "-o", "json").answer
    assert shown["letters"] == 2
    listed = command("dead", "show", "0:0", *dead).out
    assert "schema 99 is not in the registry" in listed
    assert registry.requests["/schemas/ids/99"] <= 2, "once for each process"


@pytest.mark.long
def test_the_preview_has_the_schemas_at_both_ends_or_a_refusal(
    command: Command, registry: Registry
) -> None:
    topic = command.topic(partitions=2)
    write, note = Serialisers(registry.url, topic.name), {"name": "n", "type": ["null", "int"]}
    topic.produce([write.avro(order(1)), *([write.avro({**order(2), "n": 1}, note)] * 10)])
    topic.produce([b"{}"], partition=1)
    formats = ("--value-format", "avro", "--registry", registry.url, "--from", "earliest")
    what = [*command.what(topic, command.handler(HANDLER)), *formats]
    registry.status = 503
    for looks in (("run", "--yes"), ("inspect",)):
        refused = command(*looks, *what, code=3)
        assert "does not answer" in refused.error
        assert "address" in refused.hint
    registry.status = 200
    seen = command("run", *what, "--yes", "--tune", "on-split-failure=skip", code=6).err
    assert f"values decode by schema 2, 3 of the registry {registry.url}" in seen
    assert seen.count(f"{topic.name}/1/0 can't be decoded") == 1


COUNT = 300  # Not all of them are tried before the drain.


@pytest.mark.long
def test_an_outage_of_the_registry_is_waited_out(command: Command, registry: Registry) -> None:
    topic = command.topic()
    write, note = Serialisers(registry.url, topic.name), {"name": "n", "type": ["null", "int"]}
    first, evolved = write.avro(order(1)), write.avro({**order(2), "n": 1}, note)
    seen = {at for _, *of in windows_over({0: (0, COUNT)}, MESSAGES, 0) for at in range(*of)}
    unseen = min({*range(COUNT)} - seen)
    topic.produce([evolved if at == unseen else first for at in range(COUNT)])
    registry.away.add(evolved[4])  # and not that of the messages that the preview needs
    (command.folder / "client.properties").write_text(
        f"bootstrap.servers={command.bootstrap}\nschema.registry.url={registry.url}\n"
        "schema.registry.basic.auth.user.info=me:hidden\n"
    )
    client = ("--client-config", "client.properties")
    what = [*command.what(topic, command.handler(HANDLER))[2:], "--from", "earliest", *client]
    words = ["--yes", "--value-format", "avro", "--tune", "on-split-failure=dead-letter"]
    # The schema is got before a batch is queued, so that no message of it is given up.
    halted = command("run", *what, *words, "--tune", "max-outage=100ms", code=5)
    assert "does not answer" in halted.error
    assert "for longer than --tune max-outage" in halted.error
    assert "hidden" not in halted.err
    waits = command.start(*halted.resume_words, "--yes", "--tune", "max-outage=1h")
    waits.prints("does not answer")
    registry.away.clear()
    ended = waits.ends(0)
    assert halted.out.count("got None") + ended.out.count("got None") == COUNT


FAILS = """
def split(message):
    raise ValueError(message.decoded["id"])
"""


@pytest.mark.long
def test_letters_are_shown_and_redriven_by_their_schema_and_go_back_as_they_were(
    command: Command, registry: Registry
) -> None:
    topic, dead, source = command.topic(), command.topic(), command.topic()
    serialise = Serialisers(registry.url, source.name)
    values = [serialise.avro(order(n)) for n in range(2)]
    formats = ["--value-format", "avro", "--registry", registry.url]
    topic.produce(values[:1])
    words = [*command.what(topic, command.handler(HANDLER + FAILS)), "--from", "earliest", "--yes"]
    words += ["--tune", "on-split-failure=dead-letter", "--tune", f"dead-letter-topic={dead.name}"]
    command("run", *words, *formats, code=6)
    place = {"topic": source.name.encode(), "partition": b"0", "offset": b"7"}
    headers = [(f"kafka_dlt-original-{name}", value) for name, value in place.items()]
    write(dead, [Record(b"k", value, 0, headers) for value in (values[1], b"none")])
    where = ["-b", command.bootstrap, "--dead-letter-topic", dead.name]
    shown = command("dead", "show", "0:1", *where, *formats, "-o", "json").answer
    assert (shown["payload"], shown["undecoded"]) == (repr(order(1)), None)

    words = [*where, *formats, "--handler", command.handler(HANDLER, "h.py"), "--mixed", "--yes"]
    ended = command("redrive", *words, "--group", "handled", "--plan", "handled.json", code=6)
    assert [line for line in ended.out.splitlines() if line.startswith("got")] == [
        f"got {key} {order(number)}" for number, key in enumerate(("None", "b'k'"))
    ]
    command("redrive", *where, "--to", "source", "--mixed", "--yes")
    sent = [record.value for record in read_letters(command.cluster, source.name)]
    assert sent == [values[1], b"none", b"none"], "which is dead again"
    assert [record.value for record in read_letters(command.cluster, topic.name)] == [values[0]] * 2
