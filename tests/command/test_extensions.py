"""A drain in one process is the house alone."""

from __future__ import annotations

from command.conftest import operations
from command.process import Command

EXTENSIONS = {"spark", "insight", "limits", "certify", "sandbox", "letters", "demo"}
WRITES_AT_THE_END = """
import atexit, sys
from pathlib import Path

atexit.register(lambda: Path("loaded").write_text(" ".join(sys.modules)))

def handle(sub):
    pass
"""


def test_a_drain_in_this_process_loads_no_wing(command: Command) -> None:
    topic = command.topic(operations(10))
    handler = command.folder / "tells.py"
    handler.write_text(WRITES_AT_THE_END)
    command.by = ("/usr/bin/env",)  # its modules are its own

    where = ["-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic)]
    what = [*where, "--handler", str(handler), "--from", "earliest", "--yes"]
    command("run", *what, "--engine", "process")

    loaded = (command.folder / "loaded").read_text().split()
    assert "drainer.engine.local" in loaded
    assert not {name.split(".")[1] for name in loaded if name.startswith("drainer.")} & EXTENSIONS
