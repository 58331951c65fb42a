"""How a drain ended: its exit code, and the account that has to add up."""

from __future__ import annotations

from collections.abc import Mapping

from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.status import PartitionResult
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_HALTED,
    EXIT_INTERRUPTED,
    DrainerError,
)

_STATUS_OF = {
    EXIT_DONE: "done",
    EXIT_DEAD_LETTERS: "done",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_HALTED: "halted",
}


def concluded(
    cause: BaseException | None, messages: Counts, subs: Counts, *, dead: int
) -> tuple[str, int, DrainerError | None]:
    """The status, the exit code and the reason to tell of a drain that ``cause`` ended.

    Raises what is no DrainerError. An account that doesn't add up is told whatever the cause was.
    """
    if cause is not None and not isinstance(cause, DrainerError):
        raise cause
    if not (messages.conserved and subs.conserved):
        cause = DrainerError(
            f"the account does not add up: messages {messages}, sub-messages {subs}",
            hint="this is a bug of drainer: report it, and keep the plan; do not resume",
        )
    code = (EXIT_DEAD_LETTERS if dead else EXIT_DONE) if cause is None else cause.exit_code
    return _STATUS_OF.get(code, "failed"), code, cause


def partition_results(
    plan: OffsetPlan, watermarks: Mapping[int, int], committed: Mapping[int, int | None]
) -> dict[int, PartitionResult]:
    """How each partition ended; ``committed`` as the group was read last."""
    return {
        number: PartitionResult(part.start, part.end, watermarks[number], committed.get(number))
        for number, part in plan.partitions.items()
    }
