"""What was produced and what the handlers of a drain and its resumes did, for checks that know
nothing of drainer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from command.record import Line
from core.messages import Place, sub_place
from drainer.message import SubMessage
from engine.made_up_kafka import Account, Kind, OnTheLoop, OnThreads, VirtualDrains
from fake_kafka import Log

Window = tuple[int, str]  # a partition, and a sub-key
Produced = Mapping[Window, Sequence[Place]]


@dataclass(frozen=True)
class Call:
    """One call of a handler. ``begun`` and ``ended`` number the events of the whole history.

    ``ended`` is None for a call that was in flight when its process was killed. ``run`` is the
    process, and ``attempt`` counts from 1 in each of them.
    """

    run: int
    key: str
    place: Place
    attempt: int
    begun: int
    ended: int | None = None
    failed: bool = False

    @property
    def done(self) -> bool:
        return self.ended is not None and not self.failed


class History:
    """The calls of a drain and its resumes in virtual time, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.runs = 0
        self._events = 0

    def handler(
        self, virtual: VirtualDrains, kind: Kind, step: Callable[[SubMessage], float | None]
    ) -> OnTheLoop | OnThreads:
        """Return the handler of a further run. ``step`` gives the seconds that a call takes."""
        handler = virtual.handler(kind, step)
        self.runs += 1
        handler.account = _Noting(self)
        return handler

    def begin(self, sub: SubMessage) -> int:
        place = sub_place(sub)
        self.calls.append(Call(self.runs, str(sub.key), place, sub.attempt, self._event()))
        return len(self.calls) - 1

    def end(self, number: int, *, failed: bool) -> None:
        self.calls[number] = replace(self.calls[number], ended=self._event(), failed=failed)

    def _event(self) -> int:
        self._events += 1
        return self._events


class _Noting(Account):
    """An account that also notes the calls of its run in a history."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    @contextmanager
    def handling(self, sub: SubMessage) -> Iterator[None]:
        number = self._history.begin(sub)
        failed = True
        try:
            with super().handling(sub):
                yield
            failed = False
        finally:
            self._history.end(number, failed=failed)


def produced_in(logs: Mapping[int, Log]) -> dict[Window, list[Place]]:
    """Return the sub-messages of logs in memory, whose values are lists of single sub-keys."""
    values = {
        (number, offset): record.value.decode()
        for number, log in logs.items()
        for offset, record in log.records.items()
    }
    return produced_as(values)


def produced_as(values: Mapping[tuple[int, int], str]) -> dict[Window, list[Place]]:
    """Return the sub-messages of values by partition and offset, in order."""
    found: dict[Window, list[Place]] = defaultdict(list)
    for (partition, offset), value in sorted(values.items()):
        for index, key in enumerate(json.loads(value)):
            found[partition, key].append((partition, offset, index))
    return found


def calls_of(lines: Sequence[Line]) -> list[Call]:
    """Return the calls in the record of processes, in the order in which they began."""
    calls: list[Call] = []
    running: dict[tuple[int, Place], int] = {}
    for at, line in enumerate(lines):
        if line.mark == "begun":
            assert line.keys is not None
            running[line.pid, line.place] = len(calls)
            [key] = line.keys
            calls.append(Call(line.pid, key, line.place, line.attempt, at))
        else:
            number = running.pop((line.pid, line.place))
            calls[number] = replace(calls[number], ended=at, failed=line.mark == "failed")
    return calls
