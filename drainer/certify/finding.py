"""A certificate of what was found about a handler, and what a test fails or warns by."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from drainer.errors import EXIT_DONE, EXIT_FOUND
from drainer.model.codec import builtins
from drainer.model.finding import Finding, Level


@dataclass(frozen=True, slots=True)
class Certificate:
    """Findings about a handler.

    Attributes:
        handled: how often ``handle`` was called.
    """

    findings: list[Finding]
    messages: int
    sub_messages: int
    handled: int = 0

    @property
    def broken(self) -> bool:
        """Whether a law does not hold; warnings and what was not checked don't count."""
        return any(finding.level is Level.BAD for finding in self.findings)

    @property
    def exit_code(self) -> int:
        return EXIT_FOUND if self.broken else EXIT_DONE

    def as_json(self) -> dict[str, object]:
        return {
            "status": "broken" if self.broken else "certified",
            "exit_code": self.exit_code,
            **builtins(self),
        }


class LawBroken(AssertionError):
    """Raised when a handler breaks a law; ``finding`` is which, with a counter-example."""

    def __init__(self, finding: Finding) -> None:
        hint = f"\nhint: {finding.hint}" if finding.hint else ""
        super().__init__(f"{finding.check}: {finding.text}{hint}")
        self.finding = finding


class HandlerDoubt(UserWarning):
    """Warned of what may be wrong with a handler, or could not be checked."""


def ensure_lawful(findings: Iterable[Finding]) -> None:
    """Raises LawBroken for the first bad finding, and warns of the doubtful ones before it."""
    for finding in findings:
        if finding.level is Level.BAD:
            raise LawBroken(finding)
        if finding.level is not Level.OK:
            warnings.warn(f"{finding.check}: {finding.text}", HandlerDoubt, stacklevel=3)
