"""Asking running drains."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from errno import EPERM
from pathlib import Path
from typing import Any

from drainer.control.place import folders, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Answer, Question, decode_status
from drainer.core.codec import decode, encode
from drainer.engine.status import Status
from drainer.errors import EXIT_USAGE, Interrupted, Refused, UsageError
from drainer.store.plan_file import PlanPlace

CONNECT_S = 2.0
QUIET_S = 15.0  # a drain tells something every few seconds


@dataclass(frozen=True, slots=True)
class Found:
    """A drain that runs on this machine, at one moment: ``status`` is None before its first, and
    ``age_s`` seconds old."""

    path: Path
    about: About
    status: Status | None
    age_s: float
    pid: int


def running() -> Iterator[Found]:
    """Those of this user; root's are everybody's. Sockets that dead ones left are removed."""
    for path in sockets():
        try:
            with suppress(Refused, Interrupted):
                yield look(path)
        except ConnectionRefusedError:
            with suppress(OSError):
                path.unlink()
        except OSError:
            continue


def socket_of(plan: PlanPlace) -> Path:
    """The socket of the drain that works by a plan. Raises Refused when none does here."""
    name = socket_name(plan)
    for folder in folders():
        if (folder / name).exists():
            return folder / name
    others = next((path for path in sockets() if path.name == name), None)
    if others is None:
        raise _none_runs(plan)
    return others


def look(path: Path) -> Found:
    """Raises Refused, Interrupted or OSError."""
    with _Talk(path, Question("status")) as talk:
        answer = next(talk.lines())
    assert answer.about is not None
    status = None if answer.status is None else decode_status(answer.status)
    return Found(path, answer.about, status, answer.age_s or 0.0, talk.pid)


def ask(plan: PlanPlace, question: Question) -> tuple[str, ...]:
    """What was done. Raises UsageError or Refused."""
    with _connected(plan, question) as talk:
        return next(talk.lines()).told or ()


def watch(plan: PlanPlace, question: Question) -> Iterator[Answer]:
    """What was done, if something was asked for, each status, and last how it ended.

    Raises UsageError, Refused, or Interrupted when the drain's process is gone.
    """
    with _connected(plan, question) as talk:
        yield from talk.lines()


def _connected(plan: PlanPlace, question: Question) -> _Talk:
    try:
        return _Talk(socket_of(plan), question)
    except ConnectionRefusedError:
        raise _none_runs(plan) from None
    except OSError as error:
        raise Refused(
            f"the drain of {plan} can't be asked: {error.strerror or error}",
            hint="only its own user and root may",
        ) from None


def _none_runs(plan: PlanPlace) -> Refused:
    return Refused(
        f"no drain by {plan} runs on this machine",
        hint="`drainer ps` lists those that do; for one elsewhere ask on its machine, or in its"
        " container",
    )


class _Talk:
    """One conversation; a context manager."""

    def __init__(self, path: Path, question: Question) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(CONNECT_S)
            self._socket.connect(str(path))
            self.pid, uid = peer(self._socket)
            if os.geteuid() not in (0, uid):
                raise PermissionError(EPERM, "it is another user's")
            self._socket.settimeout(max(QUIET_S, ANSWER_S + 5))
            self._socket.sendall(encode(question) + b"\n")
        except BaseException:
            self._socket.close()
            raise
        self._ended = False

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def lines(self) -> Iterator[Answer]:
        """Raises what the drain answered, or Interrupted when it says no more."""
        last: Mapping[str, Any] | None = None
        with self._socket.makefile("rb") as stream:
            try:
                for line in stream:
                    answer = decode(line, Answer)
                    if answer.error is not None:
                        kind = UsageError if answer.exit_code == EXIT_USAGE else Refused
                        raise kind(answer.error, hint=answer.hint)
                    last = answer.ended
                    yield answer
            except ConnectionError:
                last = None  # hung up in the middle
            except (ValueError, OSError) as error:
                raise Interrupted(
                    f"the drain can't be understood: {error}",
                    hint="is it of this version? `drainer ps` shows whether it still runs",
                ) from None
        if last is None:
            raise Interrupted(
                "the drain's process is gone", hint="resume it with its plan, if it is not done"
            )
