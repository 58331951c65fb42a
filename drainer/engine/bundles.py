"""Bundles on the event loop: workers get them, and the failure policy hears of single ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from drainer.core.bundles import Bundle, Bundler, Bundling, Inner
from drainer.core.dispatch import Dispatcher
from drainer.engine.failures import TICK_LEAST_S, Failures
from drainer.engine.workers import Starter
from drainer.handler import Fatal, Retry, Skip


class Bundles:
    """Stands between workers and ``Failures``, for a handler that wants several sub-messages."""

    def __init__(
        self,
        bundling: Bundling,
        dispatcher: Dispatcher,
        failures: Failures,
        wake: Callable[[], None],
        awaits: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._dispatcher = dispatcher
        self._failures = failures
        self._wake = wake
        self._bundler = Bundler(dispatcher, bundling, clock, self._wait, awaits)
        self._timer: asyncio.TimerHandle | None = None
        self._skipped = 0  # by the handler, one by one
        self._loop = asyncio.get_running_loop()

    @property
    def calls(self) -> int:
        """Calls that ended well."""
        return self._bundler.calls + self._skipped

    def before(self, starter: Starter) -> Starter:
        """Whom workers ask instead of this one."""
        self._bundler.use(cast(Inner, starter))
        return self._bundler

    def failed(self, bundle: Bundle, error: BaseException) -> None:
        """Hears of a call that ended with an error."""
        first, *others = bundle.members
        if isinstance(error, Retry):
            for lead in self._bundler.give_back(bundle, split=False):
                self._failures.failed(lead, error)
        elif not others or isinstance(error, Fatal) or not _may_be_split(error):
            bundle.unfold()
            self._skipped += isinstance(error, Skip)
            self._failures.failed(first, error)
        else:
            self._failures.failed_together(bundle, error, self._bundler.give_back)

    def overdue(self, bundle: Bundle) -> None:
        first, *others = bundle.members
        for sub in others:
            self._dispatcher.hold(sub)
        self._failures.late.update(others)
        self._failures.overdue(first)

    def returned(self, bundle: Bundle) -> None:
        first, *others = bundle.members
        for sub in others:
            self._dispatcher.unhold(sub)
        self._failures.late.difference_update(others)
        self._failures.returned(first)

    def stuck(self, since_s: float) -> None:
        self._failures.stuck(since_s)

    def _wait(self) -> None:
        due_s = self._bundler.due_s
        if due_s is not None:
            if self._timer is not None:
                self._timer.cancel()
            wait_s = max(TICK_LEAST_S, due_s - self._clock())
            self._timer = self._loop.call_later(wait_s, self._look_again)

    def _look_again(self) -> None:
        self._wake()
        due_s = self._bundler.due_s
        if due_s is not None and due_s > self._clock():  # the loop was early
            self._wait()  # else whoever is free next takes it


def _may_be_split(error: BaseException) -> bool:
    return isinstance(error, Exception | asyncio.CancelledError)
