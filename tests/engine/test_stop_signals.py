"""Signals arrive whatever the main thread is doing, even if it runs another event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from multiprocessing import get_context

import pytest

from drainer import testing
from drainer.engine import signals
from drainer.engine.signals import stop_signals
from drainer.errors import Signalled
from drainer.handler import Context, Handler
from drainer.loading.loader import LoadedHandler
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Summary
from drainer.operations.in_memory import drain_of

WAIT_S = 10


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_two_signals_arrive_while_the_main_thread_takes_none(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver written in C may wait for its server, or another thread may get them."""
    monkeypatch.setattr(signals, "BLOCKED_S", 0.01)
    given_up = threading.Event()
    with stop_signals(loop, lambda name: None, given_up.set):
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOP_SIGNALS)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            assert given_up.wait(WAIT_S)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.STOP_SIGNALS)


def test_a_loop_that_receives_both_is_not_given_up(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "BLOCKED_S", WAIT_S)
    received = asyncio.Queue[str]()
    given_up = threading.Event()

    async def interrupted() -> list[str]:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            return sorted([await received.get(), await received.get()])

    with stop_signals(loop, received.put_nowait, given_up.set):
        assert loop.run_until_complete(interrupted()) == ["SIGHUP", "SIGTERM"]
    assert not given_up.is_set()


def test_a_signal_to_a_child_that_was_forked_ends_that_and_stops_nothing_here(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """A pool of the handler's ends its workers so, and Ctrl-C reaches them, too."""
    received = asyncio.Queue[str]()

    async def next_signal() -> str:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(WAIT_S):
            return await received.get()

    with stop_signals(loop, received.put_nowait, lambda: None):
        child = get_context("fork").Process(target=threading.Event().wait)
        child.start()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)
        child.terminate()
        child.join(WAIT_S)
        assert loop.run_until_complete(next_signal()) == "SIGHUP"
    assert child.exitcode == -signal.SIGTERM


def test_other_signals_reach_who_listened_before(loop: asyncio.AbstractEventLoop) -> None:
    received = asyncio.Event()

    async def signalled() -> None:
        loop.add_signal_handler(signal.SIGUSR1, received.set)
        with stop_signals(loop, lambda name: None, lambda: None):
            os.kill(os.getpid(), signal.SIGUSR1)
            async with asyncio.timeout(WAIT_S):
                await received.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(signalled())


WHO: ContextVar[str] = ContextVar("WHO")


class Interrupts(Handler):
    """Interrupts its own process: while it is opened, or in its second call."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.began: list[int] = []
        self.caller: tuple[str, bool] | None = None

    async def open(self, context: Context) -> None:
        self.caller = WHO.get(), threading.current_thread() is threading.main_thread()
        if self.at == "open":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(WAIT_S)

    async def handle(self, sub: SubMessage) -> None:
        self.began.append(sub.message.offset)
        if self.at == "handle" and sub.message.offset == 1:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)


def drained_inside_a_loop(handler: Handler) -> Summary:
    async def cell() -> Summary:
        WHO.set("ana")
        messages = testing.messages([b"v"] * 5, key=b"one lane")
        with drain_of(messages, LoadedHandler("h", handler), LocalSettings()) as drain:
            return drain.run()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


@pytest.mark.parametrize("at", ["nowhere", "handle"])
def test_a_drain_inside_a_running_loop_takes_signals_and_has_the_caller_s_context(at: str) -> None:
    handler, before = Interrupts(at), signal.getsignal(signal.SIGINT)
    summary = drained_inside_a_loop(handler)
    assert handler.caller == ("ana", False)
    assert signal.getsignal(signal.SIGINT) is before
    if at == "nowhere":
        assert (summary.status, handler.began) == ("done", [0, 1, 2, 3, 4])
    else:
        assert (summary.status, handler.began) == ("interrupted", [0, 1])
        assert isinstance(summary.cause, Signalled)


def test_an_interrupt_while_the_handler_is_opened_inside_a_running_loop_is_raised() -> None:
    handler = Interrupts("open")
    with pytest.raises(KeyboardInterrupt, match="interrupted by SIGINT"):
        drained_inside_a_loop(handler)
    assert not handler.began
