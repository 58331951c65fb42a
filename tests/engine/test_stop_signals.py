"""Signals arrive whatever the main thread is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import get_context

import pytest

from drainer.engine import signals
from drainer.engine.signals import stop_signals

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
