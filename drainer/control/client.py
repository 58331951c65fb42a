"""Asking running drains, and finding those that were stopped or killed by their plans."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from errno import EPERM
from functools import partial
from math import inf
from pathlib import Path
from stat import S_ISSOCK
from time import monotonic
from typing import Any

from drainer.control.place import folders_of_users, owner_of, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Answer, Question, decode_status
from drainer.engine.status import Status
from drainer.errors import EXIT_USAGE, DrainerError, Interrupted, Refused, UsageError
from drainer.model.codec import decode, encode
from drainer.model.plan import OffsetPlan
from drainer.ownership import read_own
from drainer.store.plan_file import PLANS, PlanFile, PlanPlace

LOOK_S = 3.0  # for the answers of all drains
ANSWERED_S = ANSWER_S + 5.0  # beyond the time that a drain takes to answer
ANSWER_MOST = 1 << 22  # bytes of an answer: some 20,000 partitions
ANSWERS_MOST = 1 << 26  # of all drains together


@dataclass(frozen=True, slots=True)
class Found:
    """A drain of this machine, at one moment.

    ``uid`` is its user's, as the kernel reports it. ``status`` is None before its first, and
    ``age_s`` seconds old. ``left`` is the plan of one that no process works on.
    """

    path: Path
    uid: int
    about: About
    status: Status | None
    age_s: float
    pid: int
    left: OffsetPlan | None = None


def running() -> list[Found]:
    """Drains of this user; root finds those of all users.

    All are asked at once, so none delays another. Little is known of a drain that does not answer
    in time, or not in words of this version. Removes sockets that this user's dead drains left.
    """
    places = list(sockets())
    if not places:
        return []
    most = min(ANSWER_MOST, ANSWERS_MOST // len(places))
    look = partial(_look, until_s=monotonic() + LOOK_S, most=most)
    with ThreadPoolExecutor(len(places)) as threads:
        return [found for found in threads.map(look, *zip(*places, strict=True)) if found]


def left_in(folder: Path) -> Iterator[Found]:
    """Drains whose plan is in a folder, that are not done and that no process works on.

    Neither journals nor a state elsewhere are read: they may have done a little more. Skips plans
    that other users could have written, and what is not a plan.
    """
    for name in sorted(folder.glob(PLANS)):
        with suppress(OSError, ValueError, DrainerError):
            if not name.is_file():
                continue
            path = name.resolve()
            plan = OffsetPlan.decode(read_own(path))
            plan.check()
            if plan.complete or PlanFile(path).is_held:
                continue
            engine = "process" if plan.state is None else "spark"
            about = About(str(path), plan.topic, plan.group, plan.drain_id, engine, plan.updated)
            yield Found(path, os.geteuid(), about, None, inf, 0, plan)


def socket_of(plan: PlanPlace, user: int | None = None) -> tuple[Path, int]:
    """The socket of the drain that works by a plan, and the uid of its user.

    Anybody can make a socket of the name. So root takes its own, that of ``user`` if one is named,
    and else that of the owner of a plan file.

    Raises Refused when there is none.
    """
    users = {os.geteuid() if user is None else user}
    if user is None and isinstance(plan, Path):
        with suppress(OSError):
            users.add(plan.stat().st_uid)
    for folder, uid in folders_of_users():
        path = folder / socket_name(plan)
        if uid in users and owner_of(path, S_ISSOCK) == uid:
            return path, uid
    raise _none_runs(plan)


def ask(plan: PlanPlace, question: Question, user: int | None = None) -> tuple[str, ...]:
    """What was done. Raises UsageError or Refused."""
    with _connected(plan, question, user) as talk:
        return next(talk.lines()).told or ()


def watch(plan: PlanPlace, question: Question, user: int | None = None) -> Iterator[Answer]:
    """What was done, if something was asked for, each status, and last how it ended.

    Raises UsageError, Refused, or Interrupted when the drain's process is gone.
    """
    with _connected(plan, question, user) as talk:
        yield from talk.lines()


def _look(path: Path, uid: int, until_s: float, most: int) -> Found | None:
    """None of a drain that is gone."""
    try:
        with _Talk(path, uid, Question("status"), until_s, most) as talk:
            answer = next(talk.lines())
        if answer.about is None:
            raise ValueError("it does not say what it is")
        status = None if answer.status is None else decode_status(answer.status)
        return Found(path, uid, answer.about.cut(), status, answer.age_s or 0.0, talk.pid)
    except (ConnectionRefusedError, FileNotFoundError):
        if uid == os.geteuid():
            with suppress(OSError):
                path.unlink()
        return None
    except (OSError, ValueError, DrainerError):
        since = datetime.fromtimestamp(0, UTC).isoformat()
        return Found(path, uid, About(str(path), "?", "?", "", "?", since), None, inf, 0)


def _connected(plan: PlanPlace, question: Question, user: int | None) -> _Talk:
    try:
        return _Talk(*socket_of(plan, user), question)
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
        " user's drain, run this as that user, or as root with --user, on its machine and in its"
        " container.",
    )


class _Talk:
    """One conversation with a user's process; a context manager.

    Each answer has a size and a deadline: ``until_s`` for the first, ANSWERED_S for others. So a
    peer that sends a byte now and then holds nobody up.
    """

    def __init__(
        self,
        path: Path,
        uid: int,
        question: Question,
        until_s: float | None = None,
        most: int | None = None,
    ) -> None:
        self._until_s = monotonic() + ANSWERED_S if until_s is None else until_s
        self._most = ANSWER_MOST if most is None else most
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._wait_no_longer()
            self._socket.connect(str(path))
            self.pid, found = peer(self._socket, uid)
            if found != uid:
                raise PermissionError(EPERM, "another user's process answers on its socket")
            self._own = found == os.geteuid()
            self._wait_no_longer()
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
        try:
            while line := self._line():
                answer = decode(line, Answer)
                if answer.error is not None:
                    kind = UsageError if answer.exit_code == EXIT_USAGE else Refused
                    raise kind(answer.error, hint=answer.hint)
                last = answer.ended
                if last is not None and not self._own:
                    # A command to copy: another user's drain must not write it.
                    answer = replace(answer, ended={**last, "resume": None})
                yield answer
                self._until_s = monotonic() + ANSWERED_S
        except ConnectionError:
            last = None  # hung up in the middle
        except (ValueError, OSError) as error:
            raise Interrupted(
                f"can't read the drain's answer: {error}",
                hint="Use the drainer version of the drain. To see if it runs: drainer ps",
            ) from None
        if last is None:
            raise Interrupted(
                "the drain's process is gone", hint="If it is not done, resume its plan."
            )

    def _line(self) -> bytes:
        """The next line, empty at the end. Raises OSError or ValueError."""
        while b"\n" not in self._received:
            if len(self._received) > self._most:
                raise ValueError(f"it has more than {self._most:,} bytes")
            self._wait_no_longer()
            data = self._socket.recv(1 << 16)
            if not data:
                return b""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return bytes(line)

    def _wait_no_longer(self) -> None:
        left_s = self._until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
