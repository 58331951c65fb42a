"""Drains of Avro, Protobuf and JSON Schema through the command, with schemas of a registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from command.process import Command
from payloads.registry import AT, Registry, Serialisers, running

HANDLER = """
def handle(sub):
    print("got", sub.key, sub.payload, flush=True)
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
    formats = ("--value-format", "avro", "--split-key", "id", "--registry", registry.url)
    what = [*command.what(topic, command.handler(HANDLER)), "--from", "earliest"]
    seen = command("inspect", *what[:-4], *what[-2:], *formats, "--full", "-o", "json").answer
    assert {each["name"] for each in seen["skew"]["hottest"]} == {"'o-0'", "'o-1'", "'o-2'"}
    words = ["--yes", *formats, "--skip", "message.value.to.zip == '1'", "--max-failures", "9"]
    ended = command("run", *what, *words, "--on-split-failure", "dead-letter", code=6)
    assert [line for line in ended.out.splitlines() if line.startswith("got")] == [
        f"got o-{n} {order(n)}" for n in (0, 2)
    ]
    assert registry.url in ended.err
    dead = [
        "-b",
        command.bootstrap,
        "--dead-letter-topic",
        f"{topic.name}.{command.group(topic)}.dead",
    ]
    shown = command("dead", "list", *dead, "-o", "json").answer
    assert shown["letters"] == 2
    listed = command("dead", "show", "0:0", *dead).out
    assert "schema 99 is not in the registry" in listed
    assert registry.requests["/schemas/ids/99"] <= 2, "once for each process"


def test_an_outage_of_the_registry_is_waited_out(command: Command, registry: Registry) -> None:
    topic = command.topic()
    topic.produce([Serialisers(registry.url, topic.name).avro(order(n)) for n in range(3)])
    registry.status = 503
    (command.folder / "client.properties").write_text(
        f"bootstrap.servers={command.bootstrap}\nschema.registry.url={registry.url}\n"
        "schema.registry.basic.auth.user.info=me:hidden\n"
    )
    client = ("--client-config", "client.properties")
    what = [*command.what(topic, command.handler(HANDLER))[2:], "--from", "earliest", *client]
    words = ["--yes", "--value-format", "avro", "--on-split-failure", "dead-letter"]
    # The schema is got before a batch is queued, so that no message of it is given up.
    halted = command("run", *what, *words, "--max-outage", "100ms", code=5)
    assert "does not answer" in halted.error
    assert "for longer than --max-outage" in halted.error
    assert "hidden" not in halted.err
    waits = command.start(*halted.resume_words, "--yes", "--max-outage", "1h")
    waits.prints("does not answer")
    registry.status = 200
    ended = waits.ends(0)
    assert ended.out.count("got None") == 3
