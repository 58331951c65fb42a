"""Every drain ends by itself, and reports truly why, whatever its handler does: it names the place,
and leaves a plan that a resume is exact from."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

import drainer
from builders import counts
from core.messages import sub_place
from drainer.engine import pump
from drainer.engine.outcome import final_outcome
from drainer.errors import AccountWrong, Interrupted, Refused, ValueNotShipped
from drainer.kafka.reader import FetchedBatch
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from engine import made_up_kafka
from engine.made_up_kafka import (
    UNHURRIED,
    Kind,
    OnTheLoop,
    OnThreads,
    VirtualDrains,
    both_kinds,
    in_lanes,
    log_of,
    split_specs,
)
from fake_kafka import FakeSource
from simulation.loop import work

QUICK = FailureSettings(retry_delay_s=0.001, retry_max_delay_s=0.004, max_doubt_s=0)


def test_a_drain_that_is_done_is_failed_when_its_account_does_not_add_up() -> None:
    right, wrong = counts(done=3), counts(read=3, done=2)
    assert final_outcome(None, right, right, gave_up=0, lost=False) == ("done", 0, None)
    for each in ((right, wrong), (wrong, right)):
        status, code, cause = final_outcome(None, *each, gave_up=0, lost=False)
        assert isinstance(cause, AccountWrong)
        assert (status, code) == ("failed", cause.exit_code)


@pytest.mark.parametrize(("error", "goes_past"), [(ValueError, True), (drainer.Fatal, False)])
def test_a_drain_that_halts_at_a_sub_message_says_how_to_go_past_it(
    virtual: VirtualDrains, error: type[Exception], goes_past: bool
) -> None:
    async def step(sub: SubMessage) -> None:
        raise error("no good")

    summary = virtual.rehearsal(in_lanes(2, 1), failures=QUICK).drain(OnTheLoop(step))

    assert summary.exit_code == 5
    hint = getattr(summary.cause, "hint", None) or ""
    assert ("resume with --on-failure park or dead-letter" in hint) is goes_past


LATE = FailureSettings(timeout_s=0.05, max_outage_s=3600)
ONE = LocalSettings(concurrency=1, plan_interval_s=0.02, grace_s=0.1)


def test_threads_that_never_return_halt_the_drain_when_none_is_left(virtual: VirtualDrains) -> None:
    let_go = virtual.event()
    rehearsal = virtual.rehearsal(in_lanes(50), ONE, failures=replace(LATE, max_outage_s=0.1))
    summary = rehearsal.drain(OnThreads(lambda sub: let_go.wait()))
    let_go.set()

    assert summary.exit_code == 5
    assert "all handler threads are blocked" in (summary.error or "")
    assert summary.last.failures.late == 1
    assert summary.conserved


def test_a_handler_that_can_not_be_cancelled_halts_the_drain(virtual: VirtualDrains) -> None:
    let_go = asyncio.Event()

    async def step(sub: SubMessage) -> None:
        while not let_go.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if rehearsal.source.stopped:
                    let_go.set()

    rehearsal = virtual.rehearsal({0: log_of(["a"], ["b"])}, ONE, failures=LATE)
    summary = rehearsal.drain(OnTheLoop(step))

    assert summary.exit_code == 5
    assert "orders/0/0[0]" in (summary.error or "")
    assert "ignored 3 cancellations" in (summary.error or "")
    assert summary.sub_messages.done == 0


def test_with_a_rate_what_comes_later_is_started_when_its_time_has_come(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def step(sub: SubMessage) -> None:
        rehearsal.source.stalled = False

    def next_batch(source: FakeSource) -> FetchedBatch | None:
        found = plain(source)
        source.stalled = True
        return found

    plain = FakeSource.next_batch
    monkeypatch.setattr(FakeSource, "next_batch", next_batch)
    rehearsal = virtual.rehearsal(in_lanes(2), failures=replace(QUICK, rate=2.0))
    rehearsal.source_options = {"batch": 1}
    summary = rehearsal.drain(OnTheLoop(step))

    assert (summary.exit_code, summary.sub_messages.done) == (0, 2)


def test_an_answer_of_the_dead_letter_topic_lets_its_lane_go_on_at_its_rate(
    virtual: VirtualDrains,
) -> None:
    async def step(sub: SubMessage) -> None:
        if sub.message.offset == 0:
            raise ValueError("no good")

    failures = replace(QUICK, rate=2.0, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead")
    summary = virtual.rehearsal(in_lanes(2, 1), failures=failures).drain(OnTheLoop(step))
    assert (summary.exit_code, summary.sub_messages.dead, summary.sub_messages.done) == (6, 1, 1)
    assert summary.history[-1].details == ("done, with 1 dead letter",)


def test_a_drain_that_leaves_too_much_alone_reports_that_it_did_not_read_on(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    def selecting(reference: str, target: Any) -> LoadedHandler:
        handler = LoadedHandler(reference, target)
        handler.selects = lambda sub: sub.key != "left alone"
        return handler

    monkeypatch.setattr(made_up_kafka, "LoadedHandler", selecting)
    monkeypatch.setattr(pump, "LEFT_PENDING_MOST", 32)
    log = log_of(*(["left alone"] for _ in range(300)), ["a"])
    rehearsal = virtual.rehearsal({0: log})
    handler = OnTheLoop()
    summary = rehearsal.drain(handler)

    assert not handler.account.began
    assert summary.exit_code == 5
    assert "it reads no more" in (summary.error or "")
    monkeypatch.setattr(pump, "LEFT_PENDING_MOST", 1000)
    summary = rehearsal.drain(handler)
    assert (summary.exit_code, summary.sub_messages.done) == (0, 1)


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
    async def forgets(sub: SubMessage) -> object:
        return give(sub)

    # One call at a time: of several that fail at once any may be reported.
    rehearsal = virtual.rehearsal({0: WIDE}, replace(UNHURRIED, concurrency=1))

    summary = rehearsal.drain(OnTheLoop(forgets) if kind is OnTheLoop else OnThreads(give))

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
    most = 51 if error is None else 50  # The call that stops the loop returns nonetheless.
    assert (rehearsal.group.committed[0] or 0) <= most
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
