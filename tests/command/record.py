"""The record of what the handlers of a drain did, and the laws on it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path

# What finished may be unwritten for as long as the journal rests (50 ms), the event loop is kept
# by others (a slice of 10 ms each for the workers and the pump), and the write takes. The rest is
# for a machine that is shared: a thread of the process may wait for its turn.
UNWRITTEN_S = 0.15

Place = tuple[int, int, int]  # partition, offset, index


@dataclass(frozen=True)
class Line:
    """One line of the record. ``keys`` is None for a barrier; ``at_s`` is the monotonic clock.

    ``mark`` is ``begun``, ``done`` or ``failed``; or ``open``, ``split`` or ``close``, of no place.
    """

    mark: str
    pid: int
    at_s: float
    place: Place
    keys: tuple[str, ...] | None
    attempt: int
    id: str


@dataclass(frozen=True)
class Record:
    """The record of a drain and of its resumes, in the order of writing."""

    path: Path

    def whole(self) -> list[Line]:
        """All lines, those of the handlers' own lives too."""
        if not self.path.exists():
            return []
        return [line for text in self.path.read_text().splitlines() for line in _lines(text)]

    def lines(self) -> list[Line]:
        """The lines of calls."""
        return [line for line in self.whole() if line.place]

    def pids(self, mark: str) -> list[int]:
        """The processes of the lines with a mark."""
        return [line.pid for line in self.whole() if line.mark == mark]

    def begun(self) -> list[Place]:
        return [line.place for line in self.lines() if line.mark == "begun"]

    def done(self) -> list[Place]:
        return [line.place for line in self.lines() if line.mark == "done"]

    def attempts(self, offset: int, index: int = 0) -> list[int]:
        """The numbers of the attempts at a sub-message of partition 0, in the order they began."""
        place = (0, offset, index)
        return [
            line.attempt for line in self.lines() if line.mark == "begun" and line.place == place
        ]

    def repeats(self) -> dict[Place, int]:
        """Count of beginnings of each sub-message that was begun more than once."""
        return {place: count for place, count in Counter(self.begun()).items() if count > 1}

    def most_at_once(self, since_s: float = 0.0, until_s: float = inf) -> int:
        """Maximum of the calls in flight in between."""
        running = most = 0
        for line in self.lines():
            if line.at_s >= until_s:
                break
            running += 1 if line.mark == "begun" else -1
            most = max(most, running if line.at_s > since_s else 0)
        return most

    def check_order(self) -> None:
        """Law 1: per sub-key in (offset, index) order and never two at once, barriers alone.

        What is repeated after a crash may go back, but only then: in each process the order is
        whole from one opening of a handler to the next, and what is new to all of them comes in
        order. One that failed may come again, before all others of its sub-keys.
        """
        lines = self.lines()
        runs: dict[int, list[list[Line]]] = defaultdict(lambda: [[]])
        for line in self.whole():
            if line.mark == "open":
                runs[line.pid].append([])
            elif line.place:
                runs[line.pid][-1].append(line)
        for run in chain.from_iterable(runs.values()):
            _check_run(run)
        _check_beside(lines)
        seen: set[Place] = set()
        first = []
        for line in lines:
            if line.mark == "begun" and line.place not in seen:
                seen.add(line.place)
                first.append(line)
        _check_rising(first)


def check_repeats(
    lines: Sequence[Line],
    killed: Set[int],
    concurrency: int,
    victims: int,
    most_s: float = UNWRITTEN_S,
) -> None:
    """Ensure that only what was in flight in a killed process, or had just finished, began again.

    Of those that were killed so many were at work, one after the other. What had finished less than
    ``most_s`` before the end of its process had just finished.
    """
    last_words_s = {line.pid: line.at_s for line in lines}
    done: dict[Place, tuple[int, float]] = {}
    begun: dict[Place, int] = {}
    in_flight = Counter[int]()
    for line in lines:
        if line.mark == "done":
            done[line.place] = (line.pid, line.at_s)
            continue
        if line.place in done:
            pid, at_s = done[line.place]
            unwritten_s = last_words_s[pid] - at_s
            assert pid in killed
            assert unwritten_s <= most_s, f"{line.place} was done {unwritten_s:.3f} s before"
        elif line.place in begun:
            assert begun[line.place] in killed
            in_flight[begun[line.place]] += 1
        begun[line.place] = line.pid
    assert max(in_flight.values(), default=0) <= concurrency
    assert in_flight.total() <= victims * concurrency


def every_place(values: Sequence[str], partition: int = 0, first: int = 0) -> set[Place]:
    """The places of all sub-messages of values that were produced from offset ``first`` on."""
    return {
        (partition, offset, index)
        for offset, value in enumerate(values, first)
        for index in range(len(json.loads(value)))
    }


def _lines(text: str) -> Iterator[Line]:
    """The line of the text; none where it is being written, or was torn by a kill."""
    try:
        mark, pid, at_s, place, keys, attempt, id_ = json.loads(text)
    except json.JSONDecodeError:
        return
    keys = None if keys is None else tuple(keys)
    yield Line(mark, pid, at_s, tuple(place), keys, attempt, id_)


def _check_run(lines: Iterable[Line]) -> None:
    running: dict[str, Line] = {}
    open_: dict[Place, Line] = {}
    for line in lines:
        keys = line.keys or ()
        if line.mark != "begun":
            del open_[line.place]
            for key in keys:
                del running[key]
            continue
        for key in keys:
            assert key not in running, f"{line} began while {running[key]} ran"
            running[key] = line
        for other in open_.values():
            if other.place[0] == line.place[0]:
                assert line.keys is not None, f"barrier {line} began while {other} ran"
                assert other.keys is not None, f"{line} began while barrier {other} ran"
        open_[line.place] = line
    _check_rising(line for line in lines if line.mark == "begun" and line.attempt == 1)
    _check_tried_again(lines)


def _check_beside(lines: Sequence[Line]) -> None:
    """No process begins what another one that is alive has of the same sub-key."""
    last = {line.pid: number for number, line in enumerate(lines)}
    running: dict[str, Line] = {}
    for number, line in enumerate(lines):
        for key in line.keys or ():
            other = running.pop(key, line)
            if line.mark == "begun":
                beside = other.pid != line.pid and last[other.pid] > number
                assert not beside, f"{line} began while {other} ran"
                running[key] = line


def _check_tried_again(lines: Iterable[Line]) -> None:
    last: dict[str, Line] = {}
    for line in lines:
        for key in line.keys or ():
            before = last.get(key)
            if line.mark == "begun" and line.attempt > 1:
                assert before is not None, f"{line} has no attempt before it"
                assert (before.mark, before.place) == ("failed", line.place), f"{before}, {line}"
            last[key] = line


def _check_rising(begun: Iterable[Line]) -> None:
    last: dict[tuple[int, str], Place] = {}
    highest: dict[int, Place] = {}
    barrier: dict[int, Place] = {}
    for line in begun:
        partition = line.place[0]
        if line.keys is None:
            assert line.place > highest.get(partition, (-1, -1, -1)), f"{line} was overtaken"
            barrier[partition] = line.place
        assert line.place > barrier.get(partition, (-1, -1, -1)) or line.keys is None
        highest[partition] = max(line.place, highest.get(partition, line.place))
        for key in line.keys or ():
            before = last.get((partition, key))
            assert before is None or before < line.place, f"{line} came after {before}"
            last[partition, key] = line.place
