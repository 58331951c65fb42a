"""``--tune log-format=json``: standard error is a log that a collector reads, whatever happens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from command.conftest import distinct
from command.process import Command

AS_JSON = ("--tune", "log-format=json")


def events(err: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "event", "message"} <= set(line) for line in found)
    return found


def of(err: str, event: str) -> list[dict[str, Any]]:
    return [line for line in events(err) if line["event"] == event]


SETS_UP_LOGGING = """
import logging.config, sys
import drainer

logging.config.dictConfig({
    "version": 1,
    "handlers": {"own": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["own"], "level": "INFO"},
})

class Talks(drainer.Handler):
    async def handle(self, sub):
        print("printed", sub.message.offset)
        print("to stderr", sub.message.offset, file=sys.stderr)
        logging.getLogger("talks").error("logged %s", sub.message.offset)
"""


def test_a_drain_is_a_log_from_plan_of_action_to_summary_with_what_its_handler_prints(
    command: Command,
) -> None:
    topic = command.topic(distinct(3))
    file = command.home / "talks.py"
    file.write_text(SETS_UP_LOGGING)
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 0})
    outcome = command.drain(topic, *AS_JSON, "-o", "json", handler=f"{file}:Talks")

    names = [line["event"] for line in events(outcome.err) if line["event"] != "output"]
    assert names == ["plan_of_action", "begin", "progress", "summary"]
    (reported,) = of(outcome.err, "summary")
    (plan,) = of(outcome.err, "plan_of_action")
    (progress,) = of(outcome.err, "progress")
    assert reported["sub_messages"] == progress["sub_messages"] == outcome.answer["sub_messages"]
    assert (plan["topic"], plan["offsets"]) == (topic.name, 3)
    printed = {line["message"] for line in of(outcome.err, "output")}
    hows = ("printed", "to stderr", "logged")
    assert {f"{how} {n}" for how in hows for n in range(3)} <= printed


@pytest.mark.long
def test_what_librdkafka_logs_is_in_the_log_and_not_on_a_terminal(command: Command) -> None:
    what = ["--topic", "t", "--group", "g", "--handler", "count", "-b", "127.0.0.1:9", "--yes"]
    complaints = of(command("run", *what, *AS_JSON, code=3).err, "librdkafka")
    plain = command("run", *what, code=3).err

    assert complaints
    assert any("refused" in line["message"].lower() for line in complaints)
    assert all(line["level"] == "warning" for line in complaints)
    assert [line.partition(":")[0] for line in plain.splitlines()] == ["error", "hint"]
