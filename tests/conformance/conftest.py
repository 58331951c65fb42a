"""Fixtures of the command and of drains in virtual time, as their own tests have them."""

from __future__ import annotations

from command.conftest import command
from engine.conftest import virtual

__all__ = ["command", "virtual"]
