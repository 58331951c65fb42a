"""The socket of a running drain, through which its user and root watch and steer it by HTTP.

``GET /status`` returns one report. ``GET /watch`` returns a line for each report until the drain
has ended. ``POST /set``, ``/pause``, ``/unpause`` and ``/stop`` return what the drain did.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, suppress
from dataclasses import fields
from functools import partial
from http import HTTPStatus
from pathlib import Path
from socketserver import UnixStreamServer
from time import monotonic
from typing import Any, Self

from drainer.control.place import LENGTH_MOST, folders, link_to, make_folder, socket_name
from drainer.control.serving import QuietHandler, QuietServer
from drainer.control.wire import About, Done, DrainReport, Refusal
from drainer.engine.control import REQUESTS, Control, ControlRequest, Stop
from drainer.engine.signals import BLOCKED_S
from drainer.errors import DrainerError, Refused, UsageError, raised_as
from drainer.host.forks import keep_from_children
from drainer.host.os_errors import user_at_host
from drainer.model.codec import convert, decode, encode
from drainer.model.listed import listed
from drainer.model.status import Status, Summary
from drainer.store.place import PlanPlace
from drainer.text.escape import command
from drainer.text.mask import describe

SILENT_S = 10.0  # A peer that neither sends nor reads for this time is dropped.
ANSWER_S = 60.0  # A request may take this long, because some need the brokers.
WAIT_S = 5.0  # The longest time between two reports to a watcher.
ENDED_S = 1.0  # The drain waits this long for watchers to read the last report.
BODY_MOST = 1 << 20  # The largest body of a request, in bytes.
LENGTH_DIGITS = 9
JSON, LINES = "application/json", "application/x-ndjson"
NO_PATH = "GET /status or /watch, or POST " + ", ".join(f"/{name}" for name in REQUESTS) + "."
BUG = "This is a bug in drainer: report it. The drain itself continues."


class ControlServer:
    """Answers requests to a drain while its ``with`` block runs.

    It works in threads of its own, so that it never delays the drain. It calls ``give_up`` to end
    the process if the event loop does not notice a request to stop now. If the socket can't be
    made, ``trouble`` has the reason, and the drain runs without one.
    """

    def __init__(
        self, plan: PlanPlace, about: About, control: Control, give_up: Callable[[], None]
    ) -> None:
        self.control = control
        self.trouble: str | None = None
        self._name = socket_name(plan)
        self._plan = plan
        self._about = about
        self._give_up = give_up
        self._at_exit = ExitStack()
        self._changed = threading.Condition()
        self._status: Status | None = None
        self._at_s = monotonic()  # The time at which the status came.
        self._ended: Mapping[str, Any] = {}  # The JSON of the summary, or an error without one.
        self._over = False
        self._watchers = 0

    def __enter__(self) -> Self:
        try:
            listener = _Listener(self._name, partial(_Handler, self))
        except OSError as error:
            self.trouble = str(error)
        else:
            threading.Thread(target=listener.serve_forever, name="control", daemon=True).start()
            self._at_exit.enter_context(listener)
            self._at_exit.callback(listener.shutdown)
            # By now, the folder exists.
            with suppress(OSError):  # An earlier run has made it, or the plan is in a store.
                link_to(self._plan).symlink_to(self._plan)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.control.end()
        with self._changed:
            if isinstance(error, DrainerError):
                self._ended = {"error": str(error), "hint": error.hint}
            self._over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._watchers, ENDED_S)
        self._at_exit.close()

    def observe(self, status: Status) -> None:
        """Take the latest status of the drain."""
        with self._changed:
            self._status, self._at_s = status, monotonic()
            self._changed.notify_all()

    def end(self, summary: Summary) -> None:
        """Take the summary of the drain. Watchers get it when the block ends."""
        with self._changed:
            self._ended = summary.as_json()
        if summary.reached_its_end:
            with suppress(OSError):
                link_to(self._plan).unlink()

    def report(self) -> DrainReport:
        """Make a report of this moment."""
        with self._changed:
            age_s = monotonic() - self._at_s
            ended = self._ended if self._over else None
            return DrainReport(self._about, self._status, age_s, ended)

    def reports(self) -> Iterator[DrainReport]:
        """Yield a report now, and another for each new status until the drain has ended.

        A reader that is slower than the drain misses some statuses.
        """
        seen: object = self  # This is not a status, so the first report is made at once.
        with self._changed:
            self._watchers += 1
        try:
            while True:
                with self._changed:
                    if not self._over and self._status is seen:
                        self._changed.wait(WAIT_S)
                    seen = self._status
                report = self.report()
                yield report
                if report.ended is not None:
                    return
        finally:
            with self._changed:
                self._watchers -= 1
                self._changed.notify_all()

    def request(self, request: ControlRequest, by: str) -> tuple[str, ...]:
        """Pass a request to the drain, and return what it did. Raises UsageError or Refused."""
        done = self.control.request(request, by)
        at_once = isinstance(request, Stop) and request.now
        try:
            return done.result(BLOCKED_S if at_once else ANSWER_S)
        except futures.TimeoutError:
            if at_once:
                self._give_up()
            if not done.cancel():
                raise Refused(
                    f"the drain did not do it within {ANSWER_S:g} s: the brokers are slow",
                    hint=f"Check with `{command('watch', self._plan)}`: it may still happen.",
                ) from None
            raise Refused(
                "the drain does not answer: its handler may block the event loop",
                hint=f"Find the blocking line with `{command('watch', self._plan)}`, or end it with"
                f" `{command('stop', self._plan)} --now`.",
            ) from None


class _Listener(QuietServer, UnixStreamServer):
    request_queue_size = 64

    def __init__(self, name: str, handler: Callable[..., _Handler]) -> None:
        self._name = name
        super().__init__("", handler, bind_and_activate=False)
        try:
            self._path = self._bind()
        except BaseException:
            super().server_close()
            raise
        keep_from_children(self.socket)

    def verify_request(self, request: Any, client_address: object) -> bool:
        """Return whether the peer is the drain's user or root. The kernel reports its uid."""
        return peer(request)[1] in (0, os.geteuid())

    def shutdown(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # This ends the poll that is under way.
        super().shutdown()

    def service_actions(self) -> None:
        """Make the socket's file again if it is gone.

        The system removes it when the user's last login session ends.
        """
        if not os.path.lexists(self._path):
            with suppress(OSError):
                self._path = self._bind()

    def _bind(self) -> Path:
        """Make the socket's file in the first possible folder. Raises OSError if there is none."""
        trouble = OSError("no folder for it")
        for folder in folders():
            path = folder / self._name
            try:
                self._bind_to(path)
            except OSError as error:
                trouble = error
            else:
                return path
        raise trouble

    def _bind_to(self, path: Path) -> None:
        if len(os.fsencode(path)) > LENGTH_MOST:
            raise OSError(f"{path} is too long for a socket")
        make_folder(path.parent)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            # This drain holds the plan's lock, so a file that is there was left by a dead drain.
            path.unlink(missing_ok=True)
            made.bind(str(path))
            path.chmod(0o600)
            made.listen(self.request_queue_size)
            # The server polls this descriptor for connections, so the new socket gets its number.
            os.dup2(made.fileno(), self.fileno(), inheritable=False)

    def server_close(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        super().server_close()


class _Handler(QuietHandler):
    timeout = SILENT_S
    connection: socket.socket

    def __init__(self, drain: ControlServer, *args: Any) -> None:
        self._drain = drain
        super().__init__(*args)

    def answer(self) -> None:
        try:
            self._answer()
        except DrainerError as error:
            usage = isinstance(error, UsageError)
            status = HTTPStatus.BAD_REQUEST if usage else HTTPStatus.CONFLICT
            self._refuse(status, str(error), error.hint)
        except OSError:
            raise  # The peer has hung up.
        except Exception as error:  # A bug in an answer must not end the drain.
            failed = f"the drain failed to answer: {describe(error)}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, failed, BUG)

    def _answer(self) -> None:
        """Do what the request asks for, and reply. Raises UsageError or Refused."""
        body = self._body()
        match self.command, self.path:
            case "GET", "/status":
                self.reply(HTTPStatus.OK, JSON, self._drain.report().encoded())
            case "GET", "/watch":
                lines = (each.encoded() + b"\n" for each in self._drain.reports())
                self.reply(HTTPStatus.OK, LINES, lines)
            case "POST", path if kind := REQUESTS.get(path.removeprefix("/")):
                names = [each.name for each in fields(kind)]
                hint = (
                    f"The fields of {path} are {listed(names)}: see `drainer {kind.name} --help`."
                )
                with raised_as(UsageError, ValueError, about="not a valid request: ", hint=hint):
                    given = decode(body or b"{}", dict[str, Any])
                    if unknown := sorted(given.keys() - names):
                        raise ValueError(f"{path} has no field {listed(unknown)}")
                    request = convert(given, kind)
                if _has_hung_up(self.connection):
                    return  # While the process was suspended, the peer has given up.
                _, uid = peer(self.connection)
                done = self._drain.request(request, user_at_host(uid))
                self.reply(HTTPStatus.OK, JSON, encode(Done(done)))
            case _:
                raise UsageError(f"a drain has no {self.command} {self.path}", hint=NO_PATH)

    def _body(self) -> bytes:
        """Return the body of the request.

        Raises UsageError if the body is incomplete, because a part of it may be a valid request
        with another meaning.
        """
        length = self.headers.get("Content-Length", "0")
        known = length.isdecimal() and len(length) <= LENGTH_DIGITS
        if not known or int(length) > BODY_MOST or "Transfer-Encoding" in self.headers:
            raise UsageError(
                "the request's body has no length, or is too long",
                hint=f"Send Content-Length, up to {BODY_MOST:,}.",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise UsageError("the request's body is cut short", hint="Send all of it.")
        return body

    def _refuse(self, status: HTTPStatus, error: str, hint: str | None) -> None:
        self.reply(status, JSON, encode(Refusal(error, hint)))


def _has_hung_up(connection: socket.socket) -> bool:
    """Return whether the peer has closed its socket. One that only sends no more has not."""
    polled = select.poll()
    polled.register(connection, 0)
    return any(event & select.POLLHUP for _, event in polled.poll(0))


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid of the process at the other end.

    If the system does not report them, the pid is 0, and the uid is this user's: nobody else could
    enter the socket's folder.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.geteuid()
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return pid, uid
