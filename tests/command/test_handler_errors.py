"""What a handler does wrong stops the drain, names the place, and leaves a true plan."""

from __future__ import annotations

import json
import signal

import pytest

from command.conftest import MakeTopic, committed, distinct, operations
from command.process import ON_THE_LOOP, ON_THREADS, Command
from command.record import every_place
from drainer.kafka.cluster import Cluster

both_kinds = pytest.mark.parametrize("handler", [ON_THE_LOOP, ON_THREADS])


@both_kinds
def test_a_handler_that_raises_halts_the_drain_and_is_named_with_the_place(
    command: Command, make_topic: MakeTopic, cluster: Cluster, handler: str
) -> None:
    topic = make_topic(operations(200))
    outcome = command.drain(
        topic, "--json", "-c", "10", code=5, handler=handler, fail="0/60/1", pause_ms=1
    )
    assert f"{topic.name}/0/60[1]" in outcome.error
    assert "LookupError: the document is locked" in outcome.error
    assert outcome.resume_words[:2] == ["resume", command.plan(topic).name]
    answer = outcome.answer
    assert answer["status"] == "halted"
    assert answer["exit_code"] == 5
    assert answer["error"] == outcome.error
    assert answer["sub_messages"]["done"] == len(command.record.done())
    assert answer["partitions"]["0"]["watermark"] <= 60
    assert committed(cluster, topic) == {0: answer["partitions"]["0"]["watermark"]}
    assert (0, 60, 1) not in command.record.done()


@both_kinds
def test_once_the_handler_is_mended_resume_finishes_and_repeats_only_the_failed_one(
    command: Command, make_topic: MakeTopic, cluster: Cluster, handler: str
) -> None:
    topic = make_topic(operations(200))
    command.drain(
        topic, "-c", "10", "--retries", "0", code=5, handler=handler, fail="0/60/1", pause_ms=1
    )
    again = command.resume(topic, code=5, fail="0/60/1", pause_ms=1)
    assert f"{topic.name}/0/60[1]" in again.error
    command.resume(topic, pause_ms=1)
    assert sorted(command.record.done()) == sorted(every_place(operations(200)))
    assert command.record.repeats() == {(0, 60, 1): 3}
    assert committed(cluster, topic) == {0: 200}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{half a docum", "JSONDecodeError"),
        (b"\xff\xfe\x00", "UnicodeDecodeError"),
        (b'"not a list"', None),
        (b"7", "TypeError"),
        (b'[["a", {}]]', "hashable"),
        (b"[[]]", "keys=()"),
    ],
)
def test_a_message_that_can_not_be_split_halts_the_drain_and_is_named(
    command: Command, make_topic: MakeTopic, value: bytes, told: str | None
) -> None:
    topic = make_topic(distinct(20))
    topic.produce([value])
    topic.produce(distinct(20))
    if told is None:
        command.drain(topic)  # a string is a list of letters: strange, but the handler's business
        return
    outcome = command.drain(topic, code=5)
    assert f"{topic.name}/0/20" in outcome.error
    assert told in outcome.error
    assert {offset for _, offset, _ in command.record.done()} <= set(range(20))


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("yield message.value", "bytes instead of SubMessage"),
        ("yield None", "NoneType instead of SubMessage"),
        ("return None", "NoneType"),
        ("return SubMessage('a')", "SubMessage"),
        ("yield SubMessage(['a'])", "not the same everywhere: list"),
        ("yield SubMessage('a'); raise LookupError('no such index')", "no such index"),
        ("sub = SubMessage('a'); yield sub; yield sub", "given before"),
        ("raise SystemExit(7)", "SystemExit"),
    ],
)
def test_split_that_yields_nonsense_halts_the_drain_at_its_message(
    command: Command, make_topic: MakeTopic, split: str, told: str
) -> None:
    handlers = command.home / "nonsense.py"
    handlers.write_text(
        "from drainer import SubMessage\n"
        "async def handle(sub): pass\n"
        "def split(message):\n"
        "    if message.offset < 3:\n"
        "        return []\n"
        "    return nonsense(message)\n"
        "def nonsense(message):\n"
        f"    {split}\n"
    )
    topic = make_topic(distinct(5))
    outcome = command.drain(topic, "--json", code=5, handler=str(handlers))
    assert f"{topic.name}/0/3" in outcome.error
    assert told in outcome.error
    assert outcome.answer["partitions"]["0"]["watermark"] == 3
    assert outcome.answer["messages"]["done"] == 3


def test_split_mended_resumes_at_the_message_that_failed(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(30))
    topic.produce(["oops"])
    topic.produce(distinct(30))
    command.drain(topic, code=5)
    mended = command.handlers.read_text().replace(
        'json.loads(message.value or b"[]")',
        'json.loads(message.value if message.value != b"oops" else b"[]")',
    )
    command.handlers.write_text(mended)
    command.resume(topic)
    assert sorted(command.record.done()) == sorted(
        every_place(distinct(30)) | every_place(distinct(30), first=31)
    )
    assert committed(cluster, topic) == {0: 61}


def test_a_split_that_changed_its_mind_is_refused_at_resume(
    command: Command, make_topic: MakeTopic
) -> None:
    """What is finished of a message in part would be counted for other operations."""
    topic = make_topic(['["a", "b", "c"]'] * 5)
    running = command.begin(topic, "--grace", "100ms", gate=command.gate, gated="b")
    command.wait_for(running, "done", 10)
    running.signal(signal.SIGINT)
    running.ends(4)
    changed = command.handlers.read_text().replace("json.loads(", "reversed(json.loads(")
    command.handlers.write_text(changed.replace('b"[]"):', 'b"[]")):'))
    command.gate.touch()
    outcome = command.resume(topic, code=5)
    assert f"{topic.name}/0/0" in outcome.error
    assert "split" in outcome.error


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("raising", ["SystemExit(7)", "KeyboardInterrupt()"])
def test_whatever_handle_raises_halts_the_drain(
    command: Command, make_topic: MakeTopic, kind: str, raising: str
) -> None:
    handlers = command.home / "rude.py"
    handlers.write_text(f"{kind} handle(sub):\n    raise {raising}\n")
    topic = make_topic(distinct(5))
    outcome = command.drain(topic, "-c", "1", code=5, handler=str(handlers))
    assert f"{topic.name}/0/0[0]" in outcome.error


def test_a_handler_that_can_not_be_opened_is_refused(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(5))
    nowhere = command.home / "no" / "folder"
    outcome = command.drain(topic, "--json", "--set", f"record={nowhere}", code=3)
    assert "could not be opened: FileNotFoundError" in outcome.error
    assert outcome.answer["status"] == "refused"
    assert command.left_behind == []
    assert committed(cluster, topic) == {0: None}


def test_a_handler_that_fails_to_close_is_told(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    """It may not have flushed what it was given; whether it did, only its author knows."""
    handlers = command.home / "closing.py"
    handlers.write_text(
        "async def handle(sub): pass\ndef close():\n    raise LookupError('unflushed')\n"
    )
    topic = make_topic(distinct(5))
    assert "unflushed" in command.drain(topic, code=5, handler=str(handlers)).error
    assert committed(cluster, topic) == {0: 5}


def test_the_error_of_a_halt_is_one_object_of_json(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(distinct(5))
    outcome = command.drain(topic, "--json", "--quiet", code=5, fail="0/2/0")
    assert json.loads(outcome.out)["hint"] == outcome.hint
