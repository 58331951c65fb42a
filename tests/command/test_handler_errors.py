"""Errors of a handler stop the drain, name the place, and leave a true plan."""

from __future__ import annotations

import re

import pytest

from command.conftest import distinct, operations
from command.process import Command


def test_a_handler_that_raises_halts_the_drain_and_is_named_with_the_place(
    command: Command,
) -> None:
    topic = command.topic(operations(200))
    outcome = command.drain(topic, "-o", "json", "-c", "10", code=5, fail="0/60/1", pause_ms=1)
    assert f"{topic.name}/0/60[1]" in outcome.error
    assert re.search(r"LookupError: the document is locked \(\w+\.py:\d+\)$", outcome.error)
    assert outcome.resume_words[:2] == ["resume", command.plan(topic).name]
    answer = outcome.answer
    assert answer["status"] == "halted"
    assert answer["exit_code"] == 5
    assert answer["error"] == outcome.error
    assert answer["sub_messages"]["done"] == len(command.record.done())
    assert answer["partitions"]["0"]["watermark"] <= 60
    assert command.committed(topic) == {0: answer["partitions"]["0"]["watermark"]}
    assert (0, 60, 1) not in command.record.done()
    assert f"{topic.name}/0/60[1]" in command.resume(topic, code=5, fail="0/60/1").error
    command.resume(topic)
    command.ensure_drained(topic, once=True)
    assert set(command.record.repeats()) == {(0, 60, 1)}
    assert command.committed(topic) == {0: 200}


@pytest.mark.long
def test_a_handler_that_fails_to_close_is_reported(command: Command) -> None:
    """A handler may not have flushed; whether it did, only its author knows."""
    handlers = command.home / "closing.py"
    handlers.write_text(
        "async def handle(sub): pass\ndef close():\n    raise LookupError('unflushed')\n"
    )
    topic = command.topic(distinct(5))
    assert "unflushed" in command.drain(topic, code=5, handler=str(handlers)).error
    assert command.committed(topic) == {0: 5}
