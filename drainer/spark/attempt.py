"""Attempts of tasks, and the driver's word to them."""

from __future__ import annotations

from dataclasses import dataclass

from drainer.core.codec import Whole
from drainer.errors import Interrupted, LockLost


@dataclass(frozen=True, slots=True)
class Control:
    """What the driver says to all tasks.

    ``epoch`` is 1 for the first driver of a drain and one more for each that takes over: tasks of
    an earlier one end. ``stop`` is why all are to end; while ``paused`` they begin nothing.
    ``mounted`` says that the state is a folder which other machines see, and maybe late.
    """

    epoch: Whole
    stop: str | None = None
    paused: bool = False
    mounted: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try of a task at the share of a wave that a claim is (its selector: "2/8" or "all").

    ``number`` rises from one to the next; what it counts is its owner's business.
    """

    epoch: int
    wave: int
    claim: str
    number: int

    @property
    def share(self) -> tuple[int, int, str]:
        """What all attempts at the same have in common."""
        return self.epoch, self.wave, self.claim

    @property
    def name(self) -> str:
        return f"{share_name(*self.share)}/{self.number}"


def share_name(epoch: int, wave: int, claim: str) -> str:
    return f"{epoch}/{wave}/{claim.replace('/', 'of')}"


def overtaken(attempt: Attempt, control: Control | None) -> LockLost:
    """What to tell of an attempt that is not to go on."""
    if (gone := _taken_over(attempt.epoch, control)) is not None:
        return gone
    return LockLost(
        f"another attempt at claim {attempt.claim} of wave {attempt.wave} has taken over",
        hint="nothing is to be done here",
    )


def insist_on_driver(epoch: int, control: Control | None) -> None:
    """Raises LockLost when the driver of a task is gone, Interrupted when it asks for a stop."""
    if (gone := _taken_over(epoch, control)) is not None:
        raise gone
    # A mounted folder may still show what an earlier driver said.
    if control is not None and control.epoch == epoch and control.stop is not None:
        raise Interrupted(control.stop)


def _taken_over(epoch: int, control: Control | None) -> LockLost | None:
    if control is None:
        return LockLost(
            "the drain's state was removed: it is over, or goes on elsewhere",
            hint="nothing is to be done here",
        )
    if control.epoch > epoch:
        return LockLost(
            f"another driver has taken the drain over (epoch {control.epoch}, and this task is of"
            f" {epoch})",
            hint="nothing is to be done here",
        )
    return None
