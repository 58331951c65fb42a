"""A drain in one process is the core alone."""

from __future__ import annotations

import pytest

from command.conftest import operations
from command.process import Command

NAMES = ("spark", "insight", "limits", "certify", "sandbox", "letters", "demo", "probe", "job")
EXTENSIONS = {f"drainer.{name}" for name in NAMES}
WRITES_AT_THE_END = """
import atexit, sys
from pathlib import Path

atexit.register(lambda: Path("loaded").write_text(" ".join(sys.modules)))

def handle(sub):
    pass
"""


@pytest.mark.long
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
    assert not {".".join(name.split(".")[:2]) for name in loaded} & EXTENSIONS
