"""Findings of checks. Commands list them, and a user's tests fail because of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """The result of a check. ``UNCHECKED`` means that the check could not be made."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check.

    Attributes:
        check: the name of the check, which never changes (``deterministic``, ``tls``, ...).
        text: what was found, in words. If it is bad, the text has the counter-example.
    """

    check: str
    level: Level
    text: str
    hint: str | None = None
