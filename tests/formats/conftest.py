"""The command's fixture, and what goldens are made of."""

from __future__ import annotations

from command.conftest import command

__all__ = ["command"]
