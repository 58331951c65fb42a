"""Letters of other tools through the command: listed, shown and redriven to a handler."""

from __future__ import annotations

from pathlib import Path

from command.process import Command
from letters.foreign_letters import TOOLS, recorded, write

HANDLER = """
import json
from drainer.handler import GiveUp, Handler
from drainer.message import SubMessage

class Documents(Handler):
    def open(self, context):
        self.path = context.options["done"]

    def split(self, message):
        for document in json.loads(message.value)["documents"]:
            yield SubMessage(str(document["id"]), document)

    def handle(self, sub):
        if sub.message.topic == "orders":
            raise GiveUp("again")
        with open(self.path, "a") as file:
            print(sub.id, sub.key, sub.payload["id"], file=file)
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
    assert done.read_text().splitlines() == ["sin:0:0:0 0 0", "sin:0:1:0 1 1"]
    # Of Spring's one is no JSON, and Connect's are not, which is why they died: dead again.
    assert outcome.answer["sub_messages"]["dead"] == 4
    again = command("dead", "list", *where, "-o", "json").answer
    assert again["outstanding"] == 4
    assert {each["redrives"] for each in again["newest"]} == {1}
    assert {each["topic"] for each in again["newest"]} == {"orders", "csrc"}


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
