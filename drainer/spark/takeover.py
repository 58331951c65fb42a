"""Taking a drain with tasks over: its former driver is dead, and its tasks may not know it yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drainer.core.plan import OffsetPlan
from drainer.errors import PlanNotWritten, PlanRefused, StateLost, StateRefused
from drainer.spark.attempt import Control
from drainer.spark.state import State


def take_over(plan: OffsetPlan, say: Callable[[str], None], stop: str | None) -> State | None:
    """Makes sure that no task of a former driver does anything any more.

    The plan and the lock on its group are to be held. What the tasks told is to be loaded again
    after this: they may have told more since it was looked at. The epoch from here on is that of
    the state's ``control``. ``stop`` is what it says to tasks, for a drain that goes on without.

    Gives None for a plan without tasks. Raises PlanRefused or StateRefused when they can't be told.
    """
    if plan.state is None:
        return None
    try:
        state = State.open(plan.state.uri, plan.drain_id)
        control = state.control()
        if control is None:
            raise PlanRefused(f"the state at {state.uri} is gone since the plan was looked at")
        epoch = max(control.epoch, plan.state.epoch) + 1
        state.set_control(Control(epoch, stop))
        if not state.at_rest(below=epoch):
            say("waiting until the tasks of the former driver have ended")
        state.settle_epochs(epoch)
    except (PlanNotWritten, StateLost) as error:
        raise StateRefused(
            f"tasks of the former driver can't be told to end: {error}",
            hint="let this process write there, and say the same again; nothing was touched",
        ) from error
    return state


def leave(state: State | None, plan: Path, say: Callable[[str], None]) -> None:
    """Removes what tasks told, once the plan on disk has it all."""
    if state is None:
        return
    try:
        state.remove(plan)
    except StateLost as error:
        say(f"what the tasks told stays at {state.uri}, and nothing needs it any more: {error}")
