"""The other end of a drain's socket: finds this user's drains, and sends requests to them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from math import inf
from operator import attrgetter
from pathlib import Path

from drainer.control.place import plan_meant, remembered, socket_name, sockets
from drainer.control.server import ANSWER_S, peer
from drainer.control.wire import About, Done, DrainReport, Refusal
from drainer.engine.control import ControlRequest
from drainer.errors import DrainerError, Interrupted, Refused, UsageError, raised_as
from drainer.host.process import is_suspended
from drainer.host.trust import read_own
from drainer.model.account import Account
from drainer.model.codec import decode, encode
from drainer.model.plan import OffsetPlan
from drainer.model.status import Status
from drainer.model.terms import Terms
from drainer.store.place import PLANS, PlanPlace
from drainer.store.plan_file import PlanFile
from drainer.text.escape import command

# A drain that sends nothing for this time is listed as silent.
LOOK_S = 3.0
# A drain that runs answers a question about its status, or sends a watcher a report, within this
# time. WAIT_S is shorter.
HEARD_S = 10.0
# A request waits this long for its answer. The drain itself gives up earlier, and tells why.
ANSWERED_S = ANSWER_S + 5.0


@dataclass(frozen=True, slots=True)
class FoundDrain:
    """A drain of this user on this machine, at one moment.

    Attributes:
        path: its socket, or its plan if no process works on it.
        status: its latest status; None if there is none yet, or if it did not answer.
        age_s: the age of the status in seconds.
        pid: its process; 0 if that is not known.
        left: its plan, if no process works on it.
    """

    path: Path
    about: About
    status: Status | None
    age_s: float
    pid: int
    left: OffsetPlan | None = None


def running() -> list[FoundDrain]:
    """Find the drains of this user that run.

    All drains are asked at once, so that none delays another. If a drain does not answer in time,
    or its answer makes no sense to this version, it is listed without a status. Sockets that dead
    drains left behind are removed.
    """
    if not (paths := [*sockets()]):
        return []
    with ThreadPoolExecutor(len(paths)) as threads:
        return [found for found in threads.map(_look, paths) if found is not None]


def left_of(terms: Terms) -> Iterator[tuple[Path, OffsetPlan]]:
    """Find the plans of drains of the same topic and group that are not done and no longer run.

    They are in this folder, or this machine remembers them.
    """
    drained = attrgetter("topic_id", "group", "commits")
    for each in left_known():
        if each.left is not None and drained(each.left.terms) == drained(terms):
            yield each.path, each.left


def left_known() -> list[FoundDrain]:
    """Find the plans in this folder, and those that this machine remembers elsewhere, whose drains
    are not done and no longer run."""
    found = left((*sorted(Path().glob(PLANS)), *remembered()))
    return [*{each.path: each for each in found}.values()]


def left(paths: Iterable[Path]) -> Iterator[FoundDrain]:
    """Find the plans at these paths whose drains are not done and no longer run.

    The state of tasks is not read, so a drain on Spark may have done a little more. Plans that
    another user could have written are skipped, and so are other files.
    """
    for name in paths:
        with suppress(OSError, ValueError, DrainerError):
            if not name.is_file():
                continue
            path = name.resolve()
            plan = OffsetPlan.decode(read_own(name))
            plan.account.check()
            if plan.account.complete or PlanFile(path).is_locked:
                continue
            # A resume says what is wrong with its journal.
            with suppress(OSError, ValueError, DrainerError):
                plan = PlanFile(path).load(without_reports=True).plan
            yield FoundDrain(path, _about(path, plan, plan.account.updated), None, inf, 0, plan)


def _about(path: Path, plan: OffsetPlan, since: str) -> About:
    account = plan.account
    engine = "spark" if account.state is not None else account.resuming.engine or "process"
    return About(str(path), plan.terms.topic, plan.terms.group, plan.terms.drain_id, engine, since)


def request(plan: PlanPlace, request: ControlRequest) -> tuple[str, ...]:
    """Send a request to a drain, and return what the drain did, in words.

    It is sent only if the drain's process answers, because a suspended one would do it later.

    Raises UsageError or Refused if the drain refuses it, and Interrupted if the answer breaks off.
    """
    with _connect(plan, HEARD_S) as connection, _read_whole(plan, connection):
        _answer(connection, "GET", "status").read()
    with _connect(plan, ANSWERED_S) as connection, _read_whole(plan, connection):
        body = _answer(connection, "POST", request.name, encode(request)).read()
        return decode(body, Done).done


def watch(plan: PlanPlace) -> Iterator[DrainReport]:
    """Yield reports of a drain. The last one has the summary.

    Raises Refused if no such drain runs, and Interrupted if its process goes away.
    """
    with _connect(plan, HEARD_S) as connection, _read_whole(plan, connection):
        for line in _answer(connection, "GET", "watch"):
            report = DrainReport.decoded(line)
            yield report
            if report.ended is not None:
                return
        raise ConnectionError


def _look(path: Path) -> FoundDrain | None:
    """Ask the drain behind a socket for its status. Return None if the drain is gone."""
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
            about = About(str(path), "-", "-", "", "-", since)
            for link in (each for each in remembered() if each.stem == path.stem):
                with suppress(OSError, ValueError, DrainerError):
                    about = _about(link.resolve(), OffsetPlan.decode(read_own(link)), since)
            return FoundDrain(path, about, None, inf, pid)
        return None


def _connect(plan: PlanPlace, timeout_s: float) -> closing[socket.socket]:
    """Connect to the drain of this user that works by a plan. Raises Refused if none does."""
    name = socket_name(plan)
    for path in (each for each in sockets() if each.name == name):
        try:
            return closing(_open(path, timeout_s))
        except (ConnectionRefusedError, FileNotFoundError):
            continue  # The drain of this socket is dead, or has just ended.
        except OSError as error:
            raise Refused(
                f"can't reach the drain of {plan}: {error.strerror or error}",
                hint="Run this as the drain's user.",
            ) from None
    raise _not_running(plan)


def _not_running(plan: PlanPlace) -> Refused:
    """Return the error for a plan that no drain works by; it says how the last run ended."""
    hint = (
        "If it has just begun, try again in a moment: `drainer ps` lists it then. For another"
        " user's drain, run this as that user, on its machine and in its container."
    )
    # Path.exists() raises an error for a file in a folder that this user may not enter.
    if isinstance(plan, Path) and not os.path.exists(plan):  # noqa: PTH110
        hint = plan_meant(plan) or hint
    with suppress(OSError, ValueError, DrainerError):
        if isinstance(plan, Path) and not PlanFile(plan.resolve()).is_locked:
            account = OffsetPlan.decode(read_own(plan)).account
            how = account.last_run(datetime.now(UTC))
            return Refused(f"the drain of {plan} {how}", hint=_way_on(plan, account))
    return Refused(f"none of your drains on this machine has the plan {plan}", hint=hint)


def _way_on(plan: Path, account: Account) -> str:
    if account.complete and account.undone is None:
        return f"Nothing is left to resume: see `{command('plan show', plan)}`."
    return account.resuming.way(plan)


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
    """Send a request and return the response.

    Raises UsageError or Refused if the drain refuses the request.
    """
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
def _read_whole(plan: PlanPlace, connection: socket.socket) -> Iterator[None]:
    """Raise Interrupted if the block can't read an answer to its end."""
    troubles, about = (ValueError, OSError, HTTPException), "can't read the drain's answer: "
    hint = "Use the drainer version of the drain. To see if it runs: `drainer ps`"
    pid, _ = peer(connection)
    with raised_as(Interrupted, *troubles, about=about, hint=hint):
        try:
            yield
        except (ConnectionError, IncompleteRead):
            way_on = "If it is not done, resume its plan."
            with suppress(OSError, ValueError, DrainerError):
                if isinstance(plan, Path):
                    way_on = _way_on(plan, OffsetPlan.decode(read_own(plan)).account)
            raise Interrupted("the drain's process is gone", hint=way_on) from None
        except TimeoutError:
            suspended, way_out = "", f"Try again. If it never answers, end it: `kill {pid}`"
            if is_suspended(pid):
                suspended, way_out = ": it is suspended", f"Continue it: `kill -CONT {pid}`"
            raise Interrupted(
                f"the drain's process {pid} does not answer{suspended}", hint=way_out
            ) from None
