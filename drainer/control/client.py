"""Asking running drains."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EPERM
from math import inf
from pathlib import Path
from typing import Any

from drainer.control.place import folders, owner_of, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Answer, Question, decode_status
from drainer.core.codec import decode, encode
from drainer.engine.status import Status
from drainer.errors import EXIT_USAGE, DrainerError, Interrupted, Refused, UsageError
from drainer.store.plan_file import PlanPlace

CONNECT_S = 2.0
QUIET_S = 5.0  # beyond the time that a drain takes to answer
LINE_MOST = 1 << 26  # bytes of an answer


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
    """Those of this user; root's are everybody's. Of one that does not answer, or not in words of
    this version, little is known. Sockets that this user's dead ones left are removed."""
    for path in sockets():
        try:
            yield look(path)
        except ConnectionRefusedError:
            if path.parent in folders() and path.is_socket():
                with suppress(OSError):
                    path.unlink()
        except FileNotFoundError:
            continue
        except (OSError, ValueError, DrainerError):
            since = datetime.fromtimestamp(0, UTC).isoformat()
            yield Found(path, About(str(path), "?", "?", "", "?", since), None, inf, 0)


def socket_of(plan: PlanPlace) -> Path:
    """The socket of the drain that works by a plan. Raises Refused when none does here.

    Root takes that of the plan's owner: anybody can make a socket of the name.
    """
    name = socket_name(plan)
    found = [path for path in sockets() if path.name == name]
    if os.geteuid() == 0 and isinstance(plan, Path):
        with suppress(OSError):
            owners = (0, plan.stat().st_uid)
            found = [path for path in found if owner_of(path.parent) in owners]
    if not found:
        raise _none_runs(plan)
    return found[0]


def look(path: Path) -> Found:
    """Raises DrainerError, ValueError or OSError within a few seconds."""
    with _Talk(path, Question("status"), CONNECT_S) as talk:
        answer = next(talk.lines())
    if answer.about is None:
        raise ValueError("it does not say what it is")
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
            f"can't reach the drain of {plan}: {error.strerror or error}",
            hint="Run this as the drain's user or as root.",
        ) from None


def _none_runs(plan: PlanPlace) -> Refused:
    return Refused(
        f"none of your drains on this machine has the plan {plan}",
        hint="If it has just begun, try again in a moment: `drainer ps` lists it then. For another"
        " user's drain, run this as that user or root, on its machine and in its container.",
    )


class _Talk:
    """One conversation; a context manager."""

    def __init__(self, path: Path, question: Question, most_s: float = ANSWER_S + QUIET_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(CONNECT_S)
            self._socket.connect(str(path))
            self.pid, uid = peer(self._socket)
            if uid not in (0, os.geteuid()) and (os.geteuid() or uid != owner_of(path.parent)):
                raise PermissionError(EPERM, "it belongs to another user")
            self._socket.settimeout(most_s)
            self._socket.sendall(encode(question) + b"\n")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def lines(self) -> Iterator[Answer]:
        """Raises what the drain answered, or Interrupted when it says no more."""
        last: Mapping[str, Any] | None = None
        with self._socket.makefile("rb") as stream:
            try:
                while line := stream.readline(LINE_MOST):
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
                    f"can't understand the drain's answer: {error}",
                    hint="Use the drainer version of the drain. To see if it runs: drainer ps",
                ) from None
        if last is None:
            raise Interrupted(
                "the drain's process is gone", hint="If it is not done, resume its plan."
            )
