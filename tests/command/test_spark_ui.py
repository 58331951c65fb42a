"""Spark's own UI shows a drain."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.request import urlopen

import pytest

from command.conftest import distinct
from command.process import Command
from drainer.sandbox.ports import free_port

pytestmark = pytest.mark.long


def test_stages_have_the_drain_and_the_step(command: Command) -> None:
    topic = command.topic(distinct(40))
    port = free_port()

    def fetch(path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
            return json.load(answer)

    conf = (f"ui.port={port}", "log.level=INFO")
    words = [word for each in conf for word in ("--spark-conf", f"spark.{each}")]
    running = command.begin(topic, "--master", "local[2]", *words, "-c", "2", pause_ms=400)
    command.wait_for(running, "begun", 2)
    (application,) = fetch("api/v1/applications")
    stages = fetch(f"api/v1/applications/{application['id']}/stages")
    with pytest.raises(ConnectionRefusedError):  # It does not listen on all addresses.
        socket.create_connection(("127.0.0.2", port))
    outcome = running.ends(0)

    drain = json.loads(command.plan(topic).read_text())["drain_id"]
    # A stage whose output is there already is listed again, and never begins.
    steps = {stage["description"] for stage in stages if stage["status"] != "PENDING"}
    assert {step.partition(f"drainer {drain}: ")[2] for step in steps} == {"slice 1"}
    assert f"Spark's UI is at http://127.0.0.1:{port}\n" in outcome.err
    assert "INFO SparkContext: Running Spark version" in outcome.err
