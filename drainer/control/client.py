"""Requests to running drains, and drains that were stopped or killed, found by their plans."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from math import inf
from pathlib import Path

from drainer.control.place import folders, is_own_socket, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Done, DrainReport, Refusal
from drainer.engine.control import ControlRequest
from drainer.errors import DrainerError, Interrupted, Refused, UsageError
from drainer.host.trust import read_own
from drainer.model.codec import decode, encode
from drainer.model.plan import OffsetPlan
from drainer.model.status import Status
from drainer.store.place import PLANS, PlanPlace
from drainer.store.plan_file import PlanFile

LOOK_S = 3.0  # without a byte from a drain, after which it is listed as silent
ANSWERED_S = ANSWER_S + 5.0  # beyond the time that a drain takes to answer a request


@dataclass(frozen=True, slots=True)
class FoundDrain:
    """A drain of this user on this machine, at one moment.

    ``status`` is None before the drain's first one, and ``age_s`` seconds old. ``pid`` is 0 if it
    is not known. ``left`` is the plan of a drain that no process works on.
    """

    path: Path
    about: About
    status: Status | None
    age_s: float
    pid: int
    left: OffsetPlan | None = None


def running() -> list[FoundDrain]:
    """Find the drains of this user.

    All are asked at once, so that none delays another. A drain that does not answer in time, or
    answers as another version does, is listed with what is known of it. Sockets that dead drains
    left are removed.
    """
    if not (paths := [*sockets()]):
        return []
    with ThreadPoolExecutor(len(paths)) as threads:
        return [found for found in threads.map(_look, paths) if found is not None]


def left_in(folder: Path) -> Iterator[FoundDrain]:
    """Find drains that are not done and that no process works on, by their plans in a folder.

    Neither journals nor a state elsewhere are read, so a drain may have done a little more. Plans
    that another user could have written are skipped, and so is what is not a plan.
    """
    for name in sorted(folder.glob(PLANS)):
        with suppress(OSError, ValueError, DrainerError):
            if not name.is_file():
                continue
            path = name.resolve()
            plan = OffsetPlan.decode(read_own(name))
            plan.account.check()
            if plan.account.complete or PlanFile(path).is_locked:
                continue
            terms, account = plan.terms, plan.account
            engine = "process" if account.state is None else "spark"
            names = terms.topic, terms.group, terms.drain_id, engine, account.updated
            yield FoundDrain(path, About(str(path), *names), None, inf, 0, plan)


def request(plan: PlanPlace, request: ControlRequest) -> tuple[str, ...]:
    """Have a request done, and return what was done. Raises UsageError, Refused or Interrupted."""
    with _connect(plan) as connection, _read_whole():
        body = _answer(connection, "POST", request.name, encode(request)).read()
        return decode(body, Done).done


def watch(plan: PlanPlace) -> Iterator[DrainReport]:
    """Yield reports of a drain, until the one that has how it ended.

    Raises Refused, or Interrupted when the drain's process is gone.
    """
    with _connect(plan) as connection, _read_whole():
        for line in _answer(connection, "GET", "watch"):
            report = DrainReport.decoded(line)
            yield report
            if report.ended is not None:
                return
        raise ConnectionError


def _look(path: Path) -> FoundDrain | None:
    """Ask a drain for its status; None if the drain is gone."""
    pid = 0
    try:
        with closing(_open(path, LOOK_S)) as connection:
            pid, _ = peer(connection)
            report = DrainReport.decoded(_answer(connection, "GET", "status").read())
        return FoundDrain(path, report.about, report.status, report.age_s, pid)
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return None
    except (OSError, ValueError, HTTPException, DrainerError):
        with suppress(OSError):
            since = datetime.fromtimestamp(path.lstat().st_mtime, UTC).isoformat()
            return FoundDrain(path, About(str(path), "-", "-", "", "-", since), None, inf, pid)
        return None


def _connect(plan: PlanPlace) -> closing[socket.socket]:
    """Connect to this user's drain that works by a plan. Raises Refused when there is none."""
    for folder in folders():
        path = folder / socket_name(plan)
        if is_own_socket(path):
            try:
                return closing(_open(path, ANSWERED_S))
            except ConnectionRefusedError:
                continue  # its drain is dead
            except OSError as error:
                raise Refused(
                    f"can't reach the drain of {plan}: {error.strerror or error}",
                    hint="Run this as the drain's user.",
                ) from None
    raise Refused(
        f"none of your drains on this machine has the plan {plan}",
        hint="If it has just begun, try again in a moment: `drainer ps` lists it then. For another"
        " user's drain, run this as that user, on its machine and in its container.",
    )


def _open(path: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _answer(
    connection: socket.socket, method: str, name: str, body: bytes | None = None
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
