"""Signals are heard whatever the main thread is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from drainer.engine import signals
from drainer.engine.signals import stop_signals

WAIT_S = 10


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_two_signals_are_heard_while_the_main_thread_takes_none(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a driver written in C that waits for its server, or when another thread got them."""
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


def test_a_loop_that_hears_both_is_not_given_up(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "BLOCKED_S", WAIT_S)
    heard: list[str] = []
    given_up = threading.Event()

    async def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            while len(heard) < 2:  # noqa: ASYNC110 - it is told from a thread
                await asyncio.sleep(0.001)

    with stop_signals(loop, heard.append, given_up.set):
        loop.run_until_complete(interrupted())
    assert sorted(heard) == ["SIGHUP", "SIGTERM"]
    assert not given_up.is_set()


def test_other_signals_reach_who_listened_before(loop: asyncio.AbstractEventLoop) -> None:
    heard = asyncio.Event()

    async def signalled() -> None:
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        with stop_signals(loop, lambda name: None, lambda: None):
            os.kill(os.getpid(), signal.SIGUSR1)
            async with asyncio.timeout(WAIT_S):
                await heard.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(signalled())
