"""The pump: splits what was fetched and delivers it, in slices, while there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Protocol

from drainer.core.dispatch import Dispatcher
from drainer.errors import DrainerError, SplitFailed
from drainer.loader import describe
from drainer.message import Message, SubMessage

SLICE_S = 0.005  # how long it keeps the event loop before others get a turn
SLICE_CHECK = 32  # messages between two looks at the clock and at the room


class Batch(Protocol):
    """Some messages in their order, and the positions that were reached beside them."""

    @property
    def messages(self) -> Iterable[tuple[Message, int]]: ...

    @property
    def reached(self) -> dict[int, int]: ...


class Pump:
    """Moves batches from the fetch thread's queue through ``split`` into the dispatcher.

    Stops while ``capacity_bytes`` are pending; ``poke`` it when there may be room again. A failure
    of ``split`` is told to ``failed`` and ends it.
    """

    def __init__(
        self,
        next_batch: Callable[[], Batch | None],
        dispatcher: Dispatcher,
        split: Callable[[Message], Iterable[SubMessage]] | None,
        capacity_bytes: int,
        wake: Callable[[], None],
        failed: Callable[[DrainerError], None],
    ) -> None:
        self._next_batch = next_batch
        self._dispatcher = dispatcher
        self._split = split
        self._capacity_bytes = capacity_bytes
        self._wake = wake
        self._failed = failed
        self._batch: Batch | None = None
        self._messages: Iterator[tuple[Message, int]] = iter(())
        self._scheduled = False
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    def poke(self) -> None:
        """Looks for work soon; call it from the loop's thread."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        self._scheduled = False
        slice_end = monotonic() + SLICE_S
        try:
            while not self._stopped and self._dispatcher.pending_bytes < self._capacity_bytes:
                if not self._deliver_some() and not self._next():
                    break
                if monotonic() > slice_end:
                    self.poke()
                    break
        except DrainerError as error:
            self.stop()
            self._failed(error)
        self._wake()

    def _next(self) -> bool:
        # The positions count only once the messages before them are delivered.
        if self._batch is not None:
            for partition, position in self._batch.reached.items():
                self._dispatcher.skip_to(partition, position)
        self._batch = self._next_batch()
        if self._batch is None:
            return False
        self._messages = iter(self._batch.messages)
        return True

    def _deliver_some(self) -> bool:
        dispatcher, split = self._dispatcher, self._split
        deliver, wanted = dispatcher.deliver, dispatcher.wants
        count = 0
        for message, size in self._messages:
            if not wanted(message):
                continue
            if split is None:
                deliver(message, [SubMessage(message.key, message.value)], size)
            else:
                try:
                    subs = list(split(message))
                except Exception as error:
                    raise SplitFailed(
                        f"split failed at {message}: {describe(error)}",
                        hint="mend the handler, then resume; nothing of this message was handled",
                    ) from error
                deliver(message, subs, size)
            count += 1
            if count == SLICE_CHECK:
                return True
        return count > 0
