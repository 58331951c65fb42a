"""A view in the background never holds up who updates it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from builders import a_status
from drainer.model.status import Status
from drainer.view.background import InBackground
from kafka.topic import eventually


class Stuck:
    """A view whose terminal takes nothing until ``reads`` is set."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.begun = threading.Event()
        self.drawn: list[str] = []
        self.ended_after: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        self.ended_after = len(self.drawn)

    def update(self, status: Status) -> None:
        self.begun.set()
        assert self.reads.wait(30)
        self.drawn.append(status.topic)


def test_nobody_waits_for_a_terminal_that_is_not_read_and_the_last_status_is_drawn() -> None:
    stuck, printed = Stuck(), list[str]()
    view: Any = stuck
    with InBackground(view, printed.append) as shown:
        shown.print_line("begun")
        shown.update(a_status(topic="first"))
        assert stuck.begun.wait(30)
        for number in range(InBackground.LINES_MOST + 5):
            shown.update(a_status(topic=f"{number}"))
            shown.print_line(f"line {number}")
        shown.update(a_status(topic="last"))
        assert (stuck.drawn, printed) == ([], ["begun"])
        stuck.reads.set()
    assert stuck.drawn == ["first", "last"]
    assert stuck.ended_after == 2
    assert printed[:2] == ["begun", "line 5"]
    assert printed[-1] == f"line {InBackground.LINES_MOST + 4}"


def test_what_comes_is_drawn_soon() -> None:
    stuck = Stuck()
    stuck.reads.set()
    view: Any = stuck
    with InBackground(view, print) as shown:
        shown.update(a_status(topic="one"))
        eventually(lambda: stuck.drawn == ["one"], "it is drawn", 30)
