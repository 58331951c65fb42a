"""The trace that the handlers of a drain left, and the laws that it must obey."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Place = tuple[int, int, int]  # partition, offset, index

JUST_NOW_S = 0.1
PLAN_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a drain.

    Attributes:
        begun_s, ended_s: the times of its first and its last line, by the monotonic clock.
        begun: the sub-messages that went into the handler.
        repeated: those of them that a later process began once more.
        repeated_done: those of the repeated ones that had finished.
        just_now: what it finished in its last 100 ms.
        lately: what it finished in its last plan interval.
    """

    begun_s: float
    ended_s: float
    begun: int
    repeated: int
    repeated_done: int
    just_now: int
    lately: int


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of a backlog.

    Attributes:
        runs: the processes by their id, in the order of their first lines.
        lost: the sub-messages that were never done.
        out_of_order: how often a lane went past a sub-message that was not done, or went back
            within one process.
        at_once: how often a sub-message began while another one of its lane was in the handler of a
            process that was alive.
    """

    runs: Mapping[int, Run]
    lost: int
    out_of_order: int
    at_once: int

    def __add__(self, other: Judged) -> Judged:
        """Join the outcomes of two backlogs, one after the other."""
        return Judged(
            {**self.runs, **other.runs},
            self.lost + other.lost,
            self.out_of_order + other.out_of_order,
            self.at_once + other.at_once,
        )

    @property
    def repeated(self) -> int:
        return sum(run.repeated for run in self.runs.values())

    @property
    def repeated_done(self) -> int:
        return sum(run.repeated_done for run in self.runs.values())


@dataclass(slots=True)
class TraceLine:
    begins: bool
    sub_key: bytes
    place: Place
    pid: int
    at_ns: int


def judge(path: Path, sub_messages: int) -> Judged:
    """Read the trace of a backlog of so many sub-messages, and judge it."""
    lines = read_lines(path)
    last_line = {line.pid: number for number, line in enumerate(lines)}
    done = {line.place for line in lines if not line.begins}
    out_of_order, at_once = _check_lanes(lines, last_line)
    return Judged(_runs(lines, last_line), sub_messages - len(done), out_of_order, at_once)


def began_after(path: Path, pid: int, moment_s: float) -> int:
    """Return how many sub-messages a process began after a moment of the monotonic clock."""
    return sum(
        line.begins and line.pid == pid and line.at_ns > moment_s * 1e9 for line in read_lines(path)
    )


def silence_around(path: Path, moment_s: float) -> tuple[float, float] | None:
    """Return the seconds from the last call before a moment to that moment, and from there to the
    next call.

    Return None if no call began after it. The moment is one of the monotonic clock.
    """
    begun_s = [line.at_ns / 1e9 for line in read_lines(path) if line.begins]
    after_s = min((each for each in begun_s if each > moment_s), default=None)
    before_s = max((each for each in begun_s if each <= moment_s), default=moment_s)
    return None if after_s is None else (moment_s - before_s, after_s - moment_s)


def read_lines(path: Path) -> list[TraceLine]:
    """Return the lines that were written as a whole. A line that a kill tore has no dot at its
    end."""
    lines = []
    for text in path.read_bytes().splitlines():
        if text.endswith(b" ."):
            mark, sub_key, partition, offset, index, pid, at_ns, _ = text.split()
            place = (int(partition), int(offset), int(index))
            lines.append(TraceLine(mark == b"+", sub_key, place, int(pid), int(at_ns)))
    return lines


def _check_lanes(lines: list[TraceLine], last_line: Mapping[int, int]) -> tuple[int, int]:
    # Kafka promises no order between partitions.
    places: dict[tuple[bytes, int], set[Place]] = defaultdict(set)
    for line in lines:
        places[line.sub_key, line.place[0]].add(line.place)
    before: dict[Place, Place] = {}
    for of_a_lane in places.values():
        in_order = sorted(of_a_lane)
        before.update(zip(in_order[1:], in_order, strict=False))
    wrong = at_once = 0
    done: set[Place] = set()
    reached: dict[tuple[int, bytes, int], Place] = {}
    in_handler: dict[bytes, tuple[int, Place]] = {}
    for number, line in enumerate(lines):
        if not line.begins:
            done.add(line.place)
            if in_handler.get(line.sub_key) == (line.pid, line.place):
                del in_handler[line.sub_key]
            continue
        other = in_handler.get(line.sub_key)
        at_once += other is not None and last_line[other[0]] > number
        in_handler[line.sub_key] = (line.pid, line.place)
        forerunner = before.get(line.place)
        wrong += forerunner is not None and forerunner not in done
        lane = (line.pid, line.sub_key, line.place[0])
        wrong += line.place <= reached.get(lane, (-1, -1, -1))
        reached[lane] = line.place
    return wrong, at_once


def _runs(lines: list[TraceLine], last_line: Mapping[int, int]) -> dict[int, Run]:
    begun: Counter[int] = Counter()
    repeated: Counter[int] = Counter()
    repeated_done: Counter[int] = Counter()
    just_now: Counter[int] = Counter()
    lately: Counter[int] = Counter()
    first_ns: dict[int, int] = {}
    begun_by: dict[Place, int] = {}
    done: set[Place] = set()
    for line in lines:
        pid = line.pid
        first_ns.setdefault(pid, line.at_ns)
        if line.begins:
            begun[pid] += 1
            if (former := begun_by.get(line.place)) is not None:
                repeated[former] += 1
                repeated_done[former] += line.place in done
            begun_by[line.place] = pid
        else:
            done.add(line.place)
            before_end_s = (lines[last_line[pid]].at_ns - line.at_ns) / 1e9
            just_now[pid] += before_end_s <= JUST_NOW_S
            lately[pid] += before_end_s <= PLAN_INTERVAL_S
    return {
        pid: Run(
            begun_s=first_ns[pid] / 1e9,
            ended_s=lines[last_line[pid]].at_ns / 1e9,
            begun=begun[pid],
            repeated=repeated[pid],
            repeated_done=repeated_done[pid],
            just_now=just_now[pid],
            lately=lately[pid],
        )
        for pid in first_ns
    }
