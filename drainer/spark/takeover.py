"""Taking a drain with tasks over: its former driver is dead, and its tasks may not know it yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drainer.core.plan import OffsetPlan
from drainer.errors import PlanNotWritten, PlanRefused, StateLost, StateRefused
from drainer.spark.attempt import Control
from drainer.spark.state import State


def take_over(plan: OffsetPlan, path: Path, say: Callable[[str], None]) -> Callable[[], None]:
    """Makes sure that no task of a former driver does anything any more, for a plan with a state.

    The plan and the lock on its group are to be held. What the tasks told is to be loaded again
    after this: they may have told more since it was looked at. The epoch from here on is that of
    the state's ``control``.

    Gives what removes all that the tasks told, once the plan on disk has it. Raises PlanRefused or
    StateRefused when they can't be told.
    """
    assert plan.state is not None
    try:
        state = State.open(plan.state.uri, plan.drain_id)
        control = state.control()
        if control is None:
            raise PlanRefused(f"the state at {state.uri} is gone since the plan was looked at")
        epoch = max(control.epoch, plan.state.epoch) + 1
        state.set_control(Control(epoch, "the drain goes on without tasks"))
        if not state.at_rest(below=epoch):
            say("waiting until the tasks of the former driver have ended")
        state.settle_epochs(epoch)
    except (PlanNotWritten, StateLost) as error:
        raise StateRefused(
            f"tasks of the former driver can't be told to end: {error}",
            hint="let this process write there, and say the same again; nothing was touched",
        ) from error

    def forget() -> None:
        try:
            state.remove(path)
        except StateLost as error:
            say(f"what the tasks told stays at {state.uri}, and nothing needs it any more: {error}")

    return forget
