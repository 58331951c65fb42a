"""A handler that fails ends the drain, names the place, and leaves a plan that a resume is exact
from."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from made_up_kafka import (
    QUICK,
    Kind,
    OnTheLoop,
    OnThreads,
    VirtualDrains,
    both_kinds,
    log_of,
    split_specs,
    work,
)

from core.messages import sub_place
from drainer.errors import Interrupted, Refused, ValueNotShipped
from drainer.message import Message, SubMessage
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure

WIDE = log_of(*([f"k{n}", f"k{(n * 3) % 40}", f"x{n}"] for n in range(200)))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        asyncio.CancelledError(),
        SystemExit(0),
        StopIteration(),
        GeneratorExit(),
        Interrupted("of the handler's own"),
    ],
    ids=lambda error: type(error).__name__,
)
@both_kinds
def test_whatever_a_handler_raises_is_a_failure(
    kind: Kind, error: BaseException, virtual: VirtualDrains
) -> None:
    def fail(sub: SubMessage) -> float:
        if (sub.message.offset, sub.index) == (7, 1):
            raise error
        return 0.0005

    rehearsal = virtual.rehearsal({0: WIDE}, failures=FailureSettings(max_doubt_s=0.2))
    handler = virtual.handler(kind, fail)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert "orders/0/7[1]" in (summary.error or "")
    assert summary.conserved
    assert handler.closed == 1
    assert (rehearsal.group.committed[0] or 0) <= 7
    rehearsal.resumes_exactly(handler)


@both_kinds
def test_a_value_that_did_not_travel_is_missing_from_each_sub_message_alike(
    kind: Kind, virtual: VirtualDrains
) -> None:
    def fail(sub: SubMessage) -> float:
        raise ValueNotShipped("message.value does not travel", hint="Set whole_messages = True.")

    rehearsal = virtual.rehearsal({0: WIDE})
    rehearsal.failures = FailureSettings(on_failure=OnFailure.SKIP, retries=5)

    summary = rehearsal.drain(virtual.handler(kind, fail))

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert "message.value does not travel" in (summary.error or "")
    assert summary.hint == "Set whole_messages = True."
    assert summary.sub_messages.finished == 0


class WithSplit(OnTheLoop):
    """Splits one offset in a way of its own."""

    def __init__(self, at: int, wrongly: Callable[[Message], Any]) -> None:
        super().__init__()
        self._at, self._wrongly = at, wrongly

    def split(self, message: Message) -> Iterable[SubMessage]:
        if message.offset == self._at:
            found: Iterable[SubMessage] = self._wrongly(message)
            return found
        return split_specs(message)


def raises_late(message: Message) -> Iterable[SubMessage]:
    yield SubMessage("a")
    raise KeyError("documents")


@pytest.mark.parametrize(
    "wrongly",
    [
        raises_late,
        lambda message: sys.exit(),
        lambda message: None,
        lambda message: [SubMessage("a"), None],
    ],
    ids=["raises after one", "exits", "gives None", "yields None"],
)
def test_a_wrong_split_halts_and_names_the_offset(
    wrongly: Callable[[Message], Any], virtual: VirtualDrains
) -> None:
    rehearsal = virtual.rehearsal({0: WIDE})
    handler = WithSplit(60, wrongly)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert "orders/0/60" in (summary.error or "")
    assert summary.hint
    assert summary.conserved
    assert not {place for place in handler.account.began if place[1] >= 60}, "of it or behind it"
    assert (rehearsal.group.committed[0] or 0) <= 60
    rehearsal.resumes_exactly(handler)


async def forgotten(sub: SubMessage) -> None:
    raise AssertionError("nothing awaits it")


async def streamed(sub: SubMessage) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("kind", "give"),
    [
        (OnTheLoop, forgotten),
        (OnTheLoop, streamed),
        (OnTheLoop, lambda sub: asyncio.get_running_loop().create_future()),
        (OnThreads, forgotten),
        (OnThreads, lambda sub: concurrent.futures.Future()),
    ],
    ids=["coroutine", "generator", "future", "coroutine on threads", "future on threads"],
)
def test_a_handle_that_gives_back_what_nothing_awaits_halts(
    kind: Kind, give: Callable[[SubMessage], object], virtual: VirtualDrains
) -> None:
    class Forgetful(OnTheLoop):
        async def handle(self, sub: SubMessage) -> object:  # type: ignore[override]
            return give(sub)

    class ForgetfulOnThreads(OnThreads):
        def handle(self, sub: SubMessage) -> object:  # type: ignore[override]
            return give(sub)

    # One call at a time: of several that fail at once any may be reported.
    rehearsal = virtual.rehearsal({0: WIDE}, replace(QUICK, concurrency=1))

    summary = rehearsal.drain(Forgetful() if kind is OnTheLoop else ForgetfulOnThreads())

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert "orders/0/0[0]" in (summary.error or "")
    assert "that nothing awaits" in (summary.error or "")
    assert summary.sub_messages.done == 0
    assert rehearsal.finished_by_the_plan() == set()
    assert rehearsal.group.committed[0] in (None, 0)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), None], ids=repr)
def test_a_task_of_the_handler_that_exits_or_stops_the_loop_halts_and_is_saved(
    error: BaseException | None, virtual: VirtualDrains
) -> None:
    """asyncio lets an exit through to whoever runs the loop: the process must not end by it."""

    async def inner(sub: SubMessage) -> None:
        await work()
        if sub_place(sub) == (0, 50, 1):
            if error is None:
                asyncio.get_running_loop().stop()
            else:
                raise error

    async def step(sub: SubMessage) -> None:
        await asyncio.create_task(inner(sub))

    rehearsal = virtual.rehearsal({0: WIDE}, LocalSettings(concurrency=8, plan_interval_s=60))
    handler = OnTheLoop(step)

    try:
        summary = rehearsal.drain(handler)
    except (SystemExit, KeyboardInterrupt) as escaped:
        pytest.fail(f"{escaped!r} would have ended the process")

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert ("loop.stop()" if error is None else type(error).__name__) in (summary.error or "")
    assert summary.hint
    assert summary.conserved
    assert handler.closed == 1
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    assert (rehearsal.group.committed[0] or 0) <= 50
    rehearsal.resumes_exactly(handler)


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (ConnectionError("no database"), "ConnectionError: no database"),
        (
            Refused("--set url=... is missing", hint="name the index"),
            r"^--set url=\.\.\. is missing$",
        ),
    ],
    ids=["an error", "a refusal in its own words"],
)
def test_an_open_that_raises_refuses_and_touches_nothing(
    error: Exception, printed: str, virtual: VirtualDrains
) -> None:
    class Late(OnTheLoop):
        async def open(self, context: object) -> None:  # type: ignore[override]
            raise error

    rehearsal = virtual.rehearsal({0: WIDE})
    handler = Late()

    with pytest.raises(Refused, match=printed) as caught:
        rehearsal.drain(handler)

    assert caught.value.hint
    assert handler.account.began == []
    assert rehearsal.group.tries == 0
