"""Taking a plan over from the user who wrote it."""

from __future__ import annotations

from dataclasses import replace

from drainer.command import command
from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.store.plan_file import LoadedPlan, PlanFile


def take_plan(
    file: PlanFile, seen: LoadedPlan, target: PlanFile, handler: str | None = None
) -> None:
    """Writes the plan that was looked at as a file of this user's, its journal folded in.

    With another ``target`` the plan that there is stays as it is. ``handler`` is where this user
    has it, None where the plan says. Raises PlanRefused when it is worked with, has changed since,
    or can't be written.
    """
    if target.path != file.path and target.path.exists():
        raise PlanRefused(f"{target.path} is there already", hint="name another file with --to")
    target.hold()
    try:
        if file.load(anybodys=True) != seen:
            raise PlanRefused(
                f"{file.path} has changed since it was looked at: its drain still runs",
                hint="let it be stopped first, with Ctrl-C; then say the same again",
            )
        plan = replace(seen.plan, handler=handler or seen.plan.handler)
        target.write(replace(plan, generation=seen.last_generation + 1, updated=THIS_PROCESS.now()))
    except PlanNotWritten as error:
        raise PlanRefused(
            str(error),
            hint=f"write it elsewhere: {command('plan take', file.path)} --to FILE",
        ) from error
    finally:
        target.release()
    target.load()
