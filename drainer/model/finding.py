"""Findings of checks: one shape for the commands that list them and the test that fails by one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Results of a check. ``UNCHECKED`` is one that could not be made."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with the reason for it.

    Attributes:
        check: its name, which stays the same (``deterministic``, ``commutes``, ``tls``, ...).
        text: what was found, in words; where it is bad, the counter-example.
    """

    check: str
    level: Level
    text: str
    hint: str | None = None
