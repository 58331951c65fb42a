"""``drainer dead``: letters listed and shown, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from command.conftest import MakeTopic
from command.process import Command
from core.letters import Sample
from drainer.kafka.settings import ClientSettings
from kafka.sender import sending
from kafka.topic import Topic

PARTITIONS = 2


@pytest.fixture
def dead(make_topic: MakeTopic) -> Topic:
    return make_topic(partitions=PARTITIONS)


def write(topic: Topic, samples: Iterable[Sample]) -> None:
    with sending(ClientSettings.load(topic.bootstrap), topic.name) as sender:
        for sample in samples:
            sender.send(sample.letter())
        assert set(sender.all_told()) == {None}


def where(topic: Topic) -> list[str]:
    return ["-b", topic.bootstrap, "--dead-letter-topic", topic.name]


def night(count: int = 10) -> list[Sample]:
    """Letters of one hot document and some others, a second apart."""
    return [
        Sample(
            "doc-hot" if n % 2 else f"doc-{n}",
            payload={"n": n},
            error=TimeoutError("db-1 took too long") if n % 5 == 0 else ValueError("no [such] doc"),
            reason="limit" if n == 9 else "failed",
            time=f"2026-03-14T18:02:{n:02}.000+00:00",
        )
        for n in range(count)
    ]


def test_the_list_counts_by_error_and_sub_key_and_tells_the_newest(
    command: Command, dead: Topic
) -> None:
    write(dead, night())
    outcome = command("dead", "list", *where(dead), "--limit", "3")
    lines = [" ".join(line.split()) for line in outcome.err.splitlines()]
    assert lines[0] == f"{dead.name}: 10 dead letters"
    assert "8 ValueError in shop:Reindex" in lines
    assert "2 TimeoutError in shop:Reindex" in lines
    assert "5 doc-hot sub-key" in lines
    times = [line.split()[1] for line in lines if "orders/2/104[1]" in line]
    assert times == [f"2026-03-14T18:02:0{n}.000+00:00" for n in (9, 8, 7)]
    assert "doc-hot ValueError: no [such] doc" in outcome.err.replace("  ", " ")
    assert outcome.out == ""


def test_a_letter_that_the_list_tells_is_shown_whole(command: Command, dead: Topic) -> None:
    write(dead, [Sample(payload={"a": {"b": [1]}}, headers=[("trace", b"\xff"), ("none", None)])])
    listed = command("dead", "list", *where(dead), "--json").answer["newest"][0]
    place = f"{listed['partition']}:{listed['offset']}"
    outcome = command("dead", "show", place, *where(dead))
    for words in (
        "of orders/2/104[1]",
        "ValueError: no such document",
        "doc-17",
        "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1",
        "shop:Reindex",
        "20260314-180212-9f3a1c",
        "3 attempts",
        r"trace: b'\xff'",
        "none: null",
        '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}\n',
    ):
        assert words in outcome.err
    assert outcome.out == ""


def test_in_json_a_letter_has_everything(command: Command, dead: Topic) -> None:
    write(dead, [Sample(payload=(1, b"x"), message_key=b"\xff", headers=[("trace", b"1")])])
    listed = command("dead", "list", *where(dead), "--json").answer
    assert (listed["letters"], listed["matching"], listed["foreign"]) == (1, 1, 0)
    (letter,) = listed["newest"]
    assert "payload" not in letter
    assert letter.pop("redriven") is False
    shown = command(
        "dead", "show", f"{letter['partition']}:{letter['offset']}", *where(dead), "--json"
    ).answer
    assert shown["exit_code"] == 0
    assert shown["origin"]["offset"] == 104
    assert shown["sub_keys"] == ["doc-17"]
    assert (shown["payload"], shown["payload_encoding"]) == ("(1, b'x')", "literal")
    assert shown["message"]["key"] == {"base64": "/w=="}
    assert shown["message"]["headers"] == [["trace", "1"]]
    assert {name: shown[name] for name in letter} == letter


def test_filters_narrow_the_list(command: Command, dead: Topic) -> None:
    write(dead, night())

    def matching(*words: str) -> int:
        answer = command("dead", "list", *where(dead), *words, "--json").answer
        assert answer["letters"] == 10
        return int(answer["matching"])

    assert matching("--sub-key", "doc-hot") == 5
    assert matching("--sub-key", "doc-2", "--sub-key", "doc-4") == 2
    assert matching("--error", "timeouterror: DB-1") == 2
    assert matching("--reason", "limit", "--error", "such") == 1
    outcome = command("dead", "list", *where(dead), "--reason", "limit")
    assert outcome.err.startswith(f"{dead.name}: 1 of 10 dead letters match\n")


def test_records_of_somebody_else_are_told_and_left_alone(command: Command, dead: Topic) -> None:
    dead.produce(["not ours"], partition=1)
    write(dead, night(3))
    outcome = command("dead", "list", *where(dead))
    assert "warning: 1 record of" in outcome.err
    assert f"{dead.name}: 3 dead letters" in outcome.err
    offset = next(
        str(offset) for offset, record in enumerate(dead.read_all(1, 1)) if not record.headers()
    )
    refused = command("dead", "show", f"1:{offset}", *where(dead), code=3)
    assert "is not a dead letter of drainer's" in refused.error
    assert refused.hint


def test_a_topic_without_letters_is_no_error(command: Command, dead: Topic) -> None:
    outcome = command("dead", "list", *where(dead))
    assert "no dead letters" in outcome.err
    assert command("dead", "list", *where(dead), "--json").answer["letters"] == 0


def test_a_topic_that_is_missing_is_refused(command: Command, dead: Topic) -> None:
    for words in (["list"], ["show", "0:0"]):
        missing = ["-b", dead.bootstrap, "--dead-letter-topic", f"{dead.name}x"]
        outcome = command("dead", *words, *missing, code=3)
        assert "does not exist" in outcome.error
        assert dead.name in outcome.hint


def test_a_place_without_a_record_is_refused(command: Command, dead: Topic) -> None:
    write(dead, [Sample()] * 3)
    assert "no record at" in command("dead", "show", "0:99", *where(dead), code=3).error
    assert "no partition 7" in command("dead", "show", "7:0", *where(dead), code=3).error
    answer = command("dead", "show", "0:99", *where(dead), "--json", code=3).answer
    assert answer["status"] == "refused"


@pytest.mark.parametrize("place", ["17", "-1:3"])
def test_what_is_no_place_is_a_usage_error(command: Command, place: str) -> None:
    words = ["-b", "127.0.0.1:1", "--dead-letter-topic", "any", "--", place]
    outcome = command("dead", "show", *words, code=2)
    assert "PARTITION:OFFSET" in outcome.error
    assert "0:17" in outcome.hint
