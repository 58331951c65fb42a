"""Requests to running drains, and drains that were stopped or killed, found by their plans."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from errno import EPERM
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from math import inf
from pathlib import Path
from stat import S_ISSOCK
from time import monotonic
from typing import Any

from drainer.control.place import folders_of_users, owner_of, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Done, DrainReport, Refusal
from drainer.engine.control import ControlRequest
from drainer.errors import DrainerError, Interrupted, Refused, UsageError
from drainer.model.codec import decode, encode
from drainer.model.plan import OffsetPlan
from drainer.model.status import Status
from drainer.ownership import read_own
from drainer.store.place import PLANS, PlanPlace
from drainer.store.plan_file import PlanFile

LOOK_S = 3.0  # for the answers of all drains
ANSWERED_S = ANSWER_S + 5.0  # beyond the time that a drain takes to answer
ANSWER_MOST = 1 << 22  # bytes of an answer: some 20,000 partitions
ANSWERS_MOST = 1 << 26  # of all drains together


@dataclass(frozen=True, slots=True)
class FoundDrain:
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


def running() -> list[FoundDrain]:
    """Drains of this user; root finds those of all users.

    All are requested at once, so none delays another. Little is known of a drain that does not
    answer in time, or as another version does. Removes sockets that this user's dead drains left.
    """
    places = list(sockets())
    if not places:
        return []
    most = min(ANSWER_MOST, ANSWERS_MOST // len(places))
    with ThreadPoolExecutor(len(places)) as threads:
        looks = [threads.submit(_look, path, uid, most) for path, uid in places]
        return [found for look in looks if (found := look.result())]


def left_in(folder: Path) -> Iterator[FoundDrain]:
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
            plan.account.check()
            if plan.account.complete or PlanFile(path).is_locked:
                continue
            terms, account = plan.terms, plan.account
            engine = "process" if account.state is None else "spark"
            names = terms.topic, terms.group, terms.drain_id, engine, account.updated
            yield FoundDrain(path, os.geteuid(), About(str(path), *names), None, inf, 0, plan)


def request(plan: PlanPlace, request: ControlRequest, user: int | None = None) -> tuple[str, ...]:
    """Have a request done, and return what was done. Raises UsageError, Refused or Interrupted."""
    with _connect(plan, user) as connection, _read_whole():
        body = _answer(connection, "POST", request.name, encode(request)).read()
        return decode(body, Done).done


def watch(plan: PlanPlace, user: int | None = None) -> Iterator[DrainReport]:
    """Reports of a drain, until the one with how it ended.

    Raises Refused, or Interrupted when the drain's process is gone.
    """
    with _connect(plan, user) as connection, _read_whole():
        for line in _answer(connection, "GET", "watch"):
            report = DrainReport.decoded(line)
            if report.ended and connection.uid != os.geteuid():
                # A command to copy: another user's drain must not write it.
                report = replace(report, ended={**report.ended, "resume": None})
            yield report
            if report.ended is not None:
                return
            connection.renew()
        raise ConnectionError


def _look(path: Path, uid: int, most: int) -> FoundDrain | None:
    """Request the status of a drain; None if the drain is gone."""
    pid = 0
    try:
        with _Connection(path, uid, LOOK_S, most) as connection:
            pid = connection.pid
            report = DrainReport.decoded(_answer(connection, "GET", "status").read())
        return FoundDrain(path, uid, report.about.cut(), report.status, report.age_s, pid)
    except (ConnectionRefusedError, FileNotFoundError):
        if uid == os.geteuid():
            with suppress(OSError):
                path.unlink()
        return None
    except (OSError, ValueError, HTTPException, DrainerError):
        with suppress(OSError):
            since = datetime.fromtimestamp(path.lstat().st_mtime, UTC).isoformat()
            return FoundDrain(path, uid, About(str(path), "-", "-", "", "-", since), None, inf, pid)
        return None


def _connect(plan: PlanPlace, user: int | None) -> _Connection:
    """Connect to the drain that works by a plan.

    Every user can make a socket of its name. So root takes its own, that of ``user`` if one is
    named, and else that of the owner of a plan file.

    Raises Refused when there is none.
    """
    users = {os.geteuid() if user is None else user}
    if user is None and isinstance(plan, Path):
        with suppress(OSError):
            users.add(plan.stat().st_uid)
    for folder, uid in folders_of_users():
        path = folder / socket_name(plan)
        if uid in users and owner_of(path, S_ISSOCK) == uid:
            try:
                return _Connection(path, uid, ANSWERED_S, ANSWER_MOST)
            except ConnectionRefusedError:
                continue  # of a dead drain
            except OSError as error:
                raise Refused(
                    f"can't reach the drain of {plan}: {error.strerror or error}",
                    hint="Run this as the drain's user or as root.",
                ) from None
    raise Refused(
        f"none of your drains on this machine has the plan {plan}",
        hint="If it has just begun, try again in a moment: `drainer ps` lists it then. For another"
        " user's drain, run this as that user, or as root with --user, on its machine and in its"
        " container.",
    )


class _Connection(socket.socket):
    """A connection to a user's process at its socket.

    An answer has a size and a deadline: a peer that sends a byte now and then does not delay it.
    """

    def __init__(self, path: Path, uid: int, answer_s: float, most: int) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._answer_s, self._most = answer_s, most
        self._until_s, self._left = monotonic() + answer_s, most
        try:
            self._wait_no_longer()
            self.connect(str(path))
            self.pid, self.uid = peer(self, uid)
            if self.uid != uid:
                raise PermissionError(EPERM, "another user's process answers on its socket")
        except BaseException:
            self.close()
            raise

    def renew(self) -> None:
        """Allow as much time and size for another answer."""
        self._until_s, self._left = monotonic() + self._answer_s, self._most

    def recv_into(self, *given: Any) -> int:
        """Receive as any socket. Raises TimeoutError after the deadline, ValueError beyond the
        size."""
        self._wait_no_longer()
        received = super().recv_into(*given)
        self._left -= received
        if self._left < 0:
            raise ValueError(f"it has more than {self._most:,} bytes")
        return received

    def _wait_no_longer(self) -> None:
        left_s = self._until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left_s)


def _answer(
    connection: _Connection, method: str, name: str, body: bytes | None = None
) -> HTTPResponse:
    """Send a request and return the response. Raises UsageError or Refused if it is refused."""
    http = HTTPConnection("drain")
    http.sock = connection
    http.request(method, f"/{name}", body)
    response = http.getresponse()
    if response.status == HTTPStatus.OK:
        return response
    refusal = decode(response.read(), Refusal)
    kind = UsageError if response.status == HTTPStatus.BAD_REQUEST else Refused
    raise kind(refusal.error, hint=refusal.hint)


@contextmanager
def _read_whole() -> Iterator[None]:
    """Raises Interrupted for an answer that breaks off or makes no sense."""
    try:
        yield
    except (ConnectionError, IncompleteRead):
        raise Interrupted(
            "the drain's process is gone", hint="If it is not done, resume its plan."
        ) from None
    except (ValueError, OSError, HTTPException) as error:
        raise Interrupted(
            f"can't read the drain's answer: {error}",
            hint="Use the drainer version of the drain. To see if it runs: drainer ps",
        ) from None
