"""Trouble for a drain while it runs, and where the group stood meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drainer.kafka.cluster import Cluster
from spark.story import Place, Story

LOOK_S = 0.02
# What finished may be unwritten for as long as a record rests (50 ms) and its write takes; the
# rest is for a machine that is shared.
UNWRITTEN_S = 0.15


class Trouble:
    """Does something to a drain once its handlers have written ``on`` so many times.

    ``act`` is given the process that wrote the last one. What it raises is raised at the end.
    With ``skips`` there are rules: the group may stand past what was not handled.
    """

    def __init__(
        self,
        story: Story,
        act: Callable[[int], None],
        *,
        on: str = "end",
        after: int = 300,
        skips: bool = False,
    ) -> None:
        self._story = story
        self._skips = skips
        self._act = act
        self._on = on
        self._after = after
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._commits: list[tuple[int, dict[int, int | None]]] = []  # when read, and where it is
        self._thread = threading.Thread(target=self._run)
        self.victim: int | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if raised is None:
            assert self.victim is not None, "the drain was over before anything was done to it"
            if not self._skips:
                self._ensure_commits()

    def _run(self) -> None:
        story = self._story
        try:
            with Cluster.connect(story.settings) as cluster:
                while not self._over.wait(LOOK_S):
                    found = cluster.committed(story.group, story.topic, tuple(story.messages))
                    self._commits.append((time.monotonic_ns(), found))
                    wrote = [line["pid"] for line in story.lines if line["what"] == self._on]
                    if self.victim is None and len(wrote) >= self._after:
                        self.victim = wrote[-1]
                        self._act(self.victim)
        except BaseException as error:
            self._failure = error

    def _ensure_commits(self) -> None:
        """The group never stood past a message that was not finished."""
        ended: dict[Place, int] = {}
        for line in self._story.lines:
            if line["what"] == "end":
                ended.setdefault(tuple(line["place"]), line["at"])
        for at, offsets in self._commits:
            for partition, offset in offsets.items():
                for place in self._story.everything:
                    if place[0] == partition and place[1] < (offset or 0):
                        assert place in ended, (place, offset)
                        assert ended[place] <= at, (place, offset)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop_for(seconds: float, then: signal.Signals) -> Callable[[int], None]:
    """Stop a process, and give it another signal after that time."""

    def act(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, then)

    return act


def interrupt(times: int) -> Callable[[int], None]:
    """Give this process, which is the driver, SIGTERM so often."""

    def act(_: int) -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)

    return act


def ensure_few_repeats(story: Story, victim: int, concurrency: int) -> None:
    """Only what the victim had in flight, or had just finished, was begun again."""
    lines = story.lines
    own = [line for line in lines if line["pid"] == victim and "place" in line]
    begun = {tuple(line["place"]): line["at"] for line in own if line["what"] == "begin"}
    ended = {tuple(line["place"]): line["at"] for line in own if line["what"] == "end"}
    again = {
        tuple(line["place"])
        for line in lines
        if line["what"] == "begin" and line["pid"] != victim and _was_before(begun, line)
    }
    assert len(begun.keys() - ended.keys()) <= concurrency
    assert story.repeated == len(again), "others repeat nothing"
    for place in again & ended.keys():
        unwritten_s = (own[-1]["at"] - ended[place]) / 1e9
        assert unwritten_s <= UNWRITTEN_S, f"{place} was done {unwritten_s:.3f} s before"


def _was_before(begun: dict[Place, int], line: dict[str, Any]) -> bool:
    return bool(begun.get(tuple(line["place"]), line["at"]) < line["at"])


def states(folder: Path) -> list[str]:
    """The names of what is left of a state."""
    return [path.name for path in folder.iterdir() if "state" in path.name]
