"""A drain in one process is the core alone, and the help does without that."""

from __future__ import annotations

import subprocess
import sys

from command.conftest import operations
from command.process import Command

EXTENSIONS = {"spark", "insight", "limits", "certify", "sandbox", "letters", "demo", "probe"}
WRITES_AT_THE_END = """
import atexit, sys
from pathlib import Path

atexit.register(lambda: Path("loaded").write_text(" ".join(sys.modules)))

def handle(sub):
    pass
"""


def test_a_drain_in_this_process_loads_no_extension(command: Command) -> None:
    topic = command.topic(operations(10))
    handler = command.folder / "at_exit.py"
    handler.write_text(WRITES_AT_THE_END)
    command.by = ("/usr/bin/env",)  # its modules are its own

    where = ["-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic)]
    what = [*where, "--handler", str(handler), "--from", "earliest", "--yes"]
    command("run", *what, "--engine", "process")

    loaded = (command.folder / "loaded").read_text().split()
    assert "drainer.engine.local" in loaded
    assert not {name.split(".")[1] for name in loaded if name.startswith("drainer.")} & EXTENSIONS


def test_the_help_of_a_drain_needs_neither_the_engine_nor_a_client() -> None:
    commands = "import drainer.cli.run, drainer.cli.resume, sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", commands], text=True).split()
    assert "drainer.cli.run" in loaded
    heavy = {"confluent_kafka", "drainer.engine.local", "drainer.core.dispatch", "http.server"}
    assert not heavy & set(loaded)
