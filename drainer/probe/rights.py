"""Kafka rights that each command needs, by the table of docs/howto/permissions.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("rights.md")
_ROW = re.compile(r"^\| (`.+?) \| (.+) \|$", re.MULTILINE)
_RIGHTS = re.compile(r"([A-Z]+(?:(?:, | and )[A-Z]+)*) on (topic|group)s? `([^`]+)`")


@cache
def rights_by_command() -> dict[str, list[tuple[str, str, str]]]:
    """The least rights of each command: READ, ``group``, ``drainer.lock.GROUP``."""
    return {
        command: [
            (operation, kind, name)
            for operations, kind, name in _RIGHTS.findall(needs)
            for operation in re.findall("[A-Z]+", operations)
        ]
        for commands, needs in _ROW.findall(TABLE.read_text())
        for command in re.findall("`([^`]+)`", commands)
    }
