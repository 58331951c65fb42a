"""What the limit per sub-key has counted, on its way from the tasks of a wave to those of the next.

An object in the state for each claim, ``EPOCH-counts/WAVE-CLAIM-ATTEMPT``, a line as in the others.
Nobody resumes from them: what a resume needs is in the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from drainer.core.codec import Whole
from drainer.errors import StateLost
from drainer.spark.attempt import Attempt
from drainer.spark.state import State
from drainer.store.journal import decode_line, encode_line


class Counted:
    """Those of one drain."""

    def __init__(self, state: State) -> None:
        self._objects = state.objects
        self._folder = state.drain_id

    def put(self, attempt: Attempt, counts: Sequence[Mapping[str, int]]) -> list[str]:
        """Writes what an attempt has counted, one by one; gives the names of that.

        Raises PlanNotWritten or StateLost.
        """
        claim = attempt.claim.replace("/", "of")
        names = []
        for place, each in enumerate(counts):
            name = f"{attempt.epoch}-counts/{attempt.wave}-{claim}-{place}-{attempt.number}"
            self._objects.put(f"{self._folder}/{name}", encode_line(each))
            names.append(name)
        return names

    def get(self, names: Iterable[str]) -> list[dict[str, int]]:
        """What was written by these names; nothing for one that is empty.

        Raises StateLost when it can't be had.
        """
        return [self._get(name) if name else {} for name in names]

    def forget(self, names: Iterable[str]) -> None:
        """Removes them. Raises StateLost."""
        for name in names:
            self._objects.remove(f"{self._folder}/{name}")

    def _get(self, name: str) -> dict[str, int]:
        data = self._objects.get(f"{self._folder}/{name}")
        try:
            if data is None:
                raise ValueError("it is gone")
            return decode_line(data, dict[str, Whole])
        except ValueError as error:
            raise StateLost(
                f"{self._objects.uri}/{self._folder}/{name} is gone or damaged: the limit per"
                " sub-key can't count on",
                hint="find out who else writes there; what is in the plan stays true: resume",
            ) from error
