"""What an earlier drainer wrote: a folder for each format version that drains may still have.

Each has two drains of the same topic that were killed, one in a process and one on Spark, and what
else a drain leaves or prints.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from command.process import Command
from drainer.message import Message, Origin
from drainer.store.journal import decode_line, encode_line
from drainer.store.plan_file import this_machine
from kafka.topic import Topic
from store.plans import signed

FOLDER = Path(__file__).parent
RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.name[0].isdecimal())
PROCESS, SPARK, STATE = "process.json", "spark.json", "state.json"
PARTITIONS, MESSAGES = 2, 40
VALUES = [
    json.dumps([f"hot-{n % 3}", f"doc-{n}", "bad" if n % 8 == 5 else f"note-{n}"])
    for n in range(MESSAGES)
]
BAD = PARTITIONS * sum("bad" in value for value in VALUES)
DEAD = ("--retries", "0", "--on-failure", "dead-letter")
HOME, USER, MACHINE = "/home/ana", "ana@db1", "db1"


def anonymous(text: str, command: Command) -> str:
    """Take what is this machine's out of a text that drainer wrote."""
    text = text.replace(str(command.home), HOME)
    return re.sub(r'"by":( ?)"\w+@[^"]+"', rf'"by":\1"{USER}"', text)


def state_of(plan: Path, command: Command) -> Iterator[tuple[str, str]]:
    """Return the objects of a state by name, without what is this machine's."""
    folder = Path(f"{plan}.state")
    for path in folder.rglob("*"):
        if path.is_file():
            body = decode_line(path.read_bytes(), dict[str, Any])
            if "host" in body:
                body["host"] = MACHINE
            yield str(path.relative_to(folder)), encode_line(body).decode()


def placed(release: str, name: str, command: Command, topic: Topic) -> Path:
    """Put a drain of that release where ``command`` resumes it, as a drain of this topic."""
    plan = command.folder / name
    for path in (FOLDER / release).glob(f"{name}*"):
        shutil.copy(path, command.folder / path.name)
    if name == SPARK:
        for place, line in json.loads((FOLDER / release / STATE).read_text()).items():
            body = decode_line(line.encode(), dict[str, Any])
            if "host" in body:  # Processes of this machine are known to be dead.
                body["host"] = this_machine()
            path = Path(f"{plan}.state") / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_line(body))

    body = orjson.loads(plan.read_bytes())
    body |= {
        "topic": topic.name,
        "topic_id": command.cluster.topic(topic.name).topic_id,
        "group": command.group(topic),
        "cluster_id": command.cluster.cluster_id,
        "bootstrap_servers": command.bootstrap,
        "handler": f"{command.handlers}:OnTheLoop",
        "failures": body["failures"] | {"dead_letter_topic": f"{topic.name}.dead"},
        "state": body["state"] and body["state"] | {"uri": f"{plan}.state"},
    }
    plan.write_bytes(signed(body) + b"\n")
    return plan


def records(release: str) -> list[Message]:
    """Return the records of that release's topic of dead letters."""
    found = json.loads((FOLDER / release / "letters.json").read_text())
    origin = Origin("orders.billing.dead", "dead-id", 0)
    return [
        Message(
            origin,
            offset,
            _bytes(each["key"]),
            _bytes(each["value"]),
            each["timestamp"],
            [(name, _bytes(value)) for name, value in each["headers"]],
        )
        for offset, each in enumerate(found)
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
