"""What an engine needs from outside: messages, a group to commit for, a lock, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from drainer.core.dispatch import Dispatcher
from drainer.engine.checkpointer import Committer, Lock
from drainer.engine.pump import Batch
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError
from drainer.handler import Writer
from drainer.message import SubMessage
from drainer.policy.rate_cap import RateLimiter

Told = Callable[[DrainerError | None], None]


class DeadLetters(Protocol):
    """Where dead letters go (kafka/letters.py)."""

    @property
    def trouble(self) -> str | None:
        """Why nothing is acknowledged; None while it is."""

    def send(self, sub: SubMessage, error: BaseException, told: Told) -> None:
        """Writes one; ``told`` is called from any thread, once it is safe or when it can't be."""

    def close(self, timeout_s: float) -> None:
        """Waits for what is not acknowledged yet, that long at most. Blocks."""


class PastLimit(Exception):
    """Why a sub-message is given up that no handler has seen."""


class Source(Protocol):
    """Where messages come from (kafka/fetch.py)."""

    @property
    def trouble(self) -> str | None:
        """Why nothing arrives; None while messages flow."""

    @property
    def failure(self) -> DrainerError | None:
        """What ended it before the end of the backlog. RecordsDeleted comes once all that was
        read has been taken."""

    def start(self) -> None: ...

    def next_batch(self) -> Batch | None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a drain needs from outside; ``open_source(dispatcher, notify)`` makes the source.

    ``notify`` is called from the source's thread when a batch waits; ``read_committed`` gives the
    group's offsets, and may raise DrainerError.
    """

    open_source: Callable[[Dispatcher, Callable[[], None]], Source]
    committer: Committer
    lock: Lock
    read_committed: Callable[[], Mapping[int, int | None]]
    dead_letters: DeadLetters | None = None  # not needed by a drain that writes none
    write_to: Callable[[str], Writer] | None = None  # for the handler
    read_pace: RateLimiter | None = None  # when reading is capped
    write_pace: RateLimiter | None = None  # and writing, of handlers that use ``write_to``
    runtime: Runtime = THIS_PROCESS
