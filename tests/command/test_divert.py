"""``--divert``: a flood goes to the letter topic, and the drain counts it as no failure."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from command.conftest import DOCUMENTS
from command.process import Command
from command.test_dead_letters import default_name, letters_of

HANDLER = f"""{DOCUMENTS}
    def handle(self, sub):
        self.note(sub.payload["customer"])
        if sub.payload.get("bad"):
            raise ValueError("bad")
"""


def documents(count: int, **more: object) -> str:
    return orjson.dumps(
        [{"id": f"d{n}", "customer": 42 if n % 3 == 0 else n, **more} for n in range(count)]
    ).decode()


def test_what_matches_waits_in_the_letter_topic_and_the_exit_code_is_zero(
    command: Command, tmp_path: Path
) -> None:
    topic = command.topic([documents(30)] * 2)
    divert = ["--divert", "payload.customer == 42", "--max-failures", "0"]
    divert += ["--tune", "after-dead=park"]
    name, done = command.handler(HANDLER), tmp_path / "done"
    outcome = command.drain(topic, *divert, "-o", "json", handler=name, done=done)
    assert outcome.answer["exit_code"] == 0
    subs = outcome.answer["sub_messages"]
    assert (subs["done"], subs["dead"]) == (40, 20)
    assert outcome.answer["diverted_by"] == {"payload.customer == 42": 20}
    assert "42" not in done.read_text().split()
    letters = letters_of(command, topic)
    assert {letter.reason for letter in letters} == {"diverted"}
    assert len(letters) == 20

    dead = default_name(command, topic)
    words = ["-b", topic.bootstrap, "--dead-letter-topic", dead, "--handler", name, "--yes"]
    command("redrive", *words, "--set", f"done={done}")
    assert done.read_text().split().count("42") == 20


@pytest.mark.long
def test_what_fails_beside_it_still_counts(command: Command, tmp_path: Path) -> None:
    topic = command.topic([documents(6), documents(1, bad=True, customer=1)])
    divert = ["--divert", "payload.customer == 42", "--retries", "0", "--tune", "max-doubt=0"]
    outcome = command.drain(
        topic,
        *divert,
        *("--on-failure", "dead-letter", "-o", "json"),
        code=6,
        handler=command.handler(HANDLER),
        done=tmp_path / "done",
    )
    assert outcome.answer["sub_messages"]["dead"] == 3
    assert sum(outcome.answer["diverted_by"].values()) == 2
