"""The commands that drainer prints: ready to be copied into a shell, whatever a file is called."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path


def command(verb: str, *words: str | Path, options: Sequence[str] = ()) -> str:
    """``drainer resume 'my plan.json'``; a path that begins with a dash stays a path."""
    paths = [f"./{word}" if str(word).startswith("-") else str(word) for word in words]
    return shlex.join(["drainer", *verb.split(), *paths, *options])
