"""The socket of a running drain: who may ask is told, who may steer is listened to."""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Self

from drainer.control.place import LENGTH_MOST, folders, make_folder, socket_name
from drainer.control.wire import LINE_MOST, About, Answer, Question, encode_status
from drainer.engine.control import Control, Stop, reason_of
from drainer.engine.signals import BLOCKED_S
from drainer.engine.status import Status, Summary
from drainer.errors import DrainerError, Refused
from drainer.loader import describe
from drainer.model.codec import decode, encode
from drainer.ownership import user_at_host
from drainer.store.plan_file import PlanPlace

SILENT_S = 10.0  # who neither asks nor reads for so long is left
ANSWER_S = 60.0  # for what has to ask the brokers
WAIT_S = 5.0  # between two lines to a watcher, at most
LOOK_S = 0.5
BUG = "This is a bug in drainer: report it. The drain itself continues."
TELL_S = 1.0  # to all watchers, how it ended


@dataclass(eq=False)
class ControlServer:
    """A context manager: answers from threads of its own while a drain runs, and never waits for
    who asks."""

    plan: PlanPlace
    about: About
    control: Control
    give_up: Callable[[], None]  # ends the process whose loop does not notice that it is to stop
    trouble: str | None = None  # why there is no socket, when there is none

    def __post_init__(self) -> None:
        self._name = socket_name(self.plan)
        self._server: _Server | None = None
        self._changed = threading.Condition()
        self._status: Status | None = None
        self._at_s = monotonic()
        self._summary: Summary | None = None
        self._over = False
        self._watchers = 0

    def __enter__(self) -> Self:
        try:
            self._server = _Server(self._name, self)
        except OSError as error:
            self.trouble = str(error)
        else:
            self._serving = threading.Thread(target=self._serve, name="control", daemon=True)
            self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.control.end()
        with self._changed:
            self._over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._watchers, TELL_S)
        if self._server is not None:
            self._server.wake()
            self._serving.join()
            self._server.server_close()

    def _serve(self) -> None:
        # As serve_forever(), whose shutdown() waits for the end of a look: each drain would.
        assert self._server is not None
        while not self._over:
            self._server.handle_request()
            self._server.service_actions()

    def observe(self, status: Status) -> None:
        """The latest, for who asks."""
        with self._changed:
            self._status, self._at_s = status, monotonic()
            self._changed.notify_all()

    def end(self, summary: Summary) -> None:
        """How it ended, for who watches."""
        with self._changed:
            self._summary = summary

    def status(self) -> Answer:
        with self._changed:
            status, age_s = self._status, monotonic() - self._at_s
        told = None if status is None else encode_status(status)
        return Answer(about=self.about, status=told, age_s=age_s)

    def watch(self, tell: Callable[[Answer], None]) -> None:
        """Tells each status until the drain has ended; a slow watcher misses some."""
        seen: Status | None = None
        with self._changed:
            self._watchers += 1
        try:
            while True:
                with self._changed:
                    if not self._over and self._status is seen:
                        self._changed.wait(WAIT_S)
                    seen, over, summary = self._status, self._over, self._summary
                if over:
                    tell(Answer(ended={} if summary is None else summary.as_json()))
                    return
                tell(self.status())
        finally:
            with self._changed:
                self._watchers -= 1
                self._changed.notify_all()

    def ask(self, question: Question, by: str) -> Answer:
        """Raises UsageError or Refused."""
        request = question.request
        answer = self.control.ask(request, by, reason_of(question.reason))
        at_once = isinstance(request, Stop) and request.now
        try:
            return Answer(told=answer.result(BLOCKED_S if at_once else ANSWER_S))
        except futures.TimeoutError:
            if at_once:
                self.give_up()
            if not answer.cancel():
                raise Refused(
                    f"the drain did not do it within {ANSWER_S:g} s: the brokers are slow",
                    hint="Check with `drainer watch`: it may still happen.",
                ) from None
            raise Refused(
                "the drain does not answer: its handler may block the event loop",
                hint="Find the blocking line with `drainer watch`, or end it with"
                " `drainer stop --now`.",
            ) from None


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = LOOK_S

    def __init__(self, name: str, of: ControlServer) -> None:
        self.of = of
        self._name = name
        super().__init__("", _Conversation, bind_and_activate=False)
        try:
            self._bind()
        except BaseException:
            super().server_close()
            raise

    def wake(self) -> None:
        """Ends a look, if one is under way."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
            waker.settimeout(LOOK_S)
            waker.connect(str(self._path))

    def service_actions(self) -> None:
        """Makes the socket's file again when it is gone, as at the end of a user's session."""
        if not os.path.lexists(self._path):
            with suppress(OSError):
                self._bind()

    def _bind(self) -> None:
        """In the first folder that takes it. Raises OSError when none does."""
        trouble: OSError | None = None
        for folder in folders():
            path = folder / self._name
            try:
                if len(os.fsencode(path)) > LENGTH_MOST:
                    raise OSError(f"{path} is too long for a socket")
                make_folder(folder)
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
                    path.unlink(missing_ok=True)  # of a dead drain: this one holds the plan
                    made.bind(str(path))
                    path.chmod(0o600)
                    made.listen(self.request_queue_size)
                    os.dup2(made.fileno(), self.fileno(), inheritable=False)  # the one selected on
            except OSError as error:
                trouble = error
                continue
            self._path, self._inode = path, path.stat().st_ino
            return
        assert trouble is not None
        raise trouble

    def server_close(self) -> None:
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who hangs up in the middle is no concern of the drain's."""


class _Conversation(socketserver.StreamRequestHandler):
    timeout = SILENT_S
    server: _Server

    def handle(self) -> None:
        of, (_, uid) = self.server.of, peer(self.connection, os.geteuid())
        if uid not in (0, os.geteuid()):
            return
        try:
            question = self._question()
            if question.ask == "status":
                self._tell(of.status())
                return
            if question.ask != "watch":
                self._tell(of.ask(question, user_at_host(uid)))
            if question.ask in ("watch", "stop"):
                of.watch(self._tell)
        except DrainerError as error:
            self._tell(Answer(error=str(error), hint=error.hint, exit_code=error.exit_code))
        except OSError:
            raise  # hung up
        except Exception as error:  # of ours: the drain goes on
            self._tell(Answer(error=f"the drain failed to answer: {describe(error)}", hint=BUG))

    def _question(self) -> Question:
        line = self.rfile.readline(LINE_MOST)
        try:
            return decode(line, Question)
        except ValueError as error:
            raise Refused(
                f"not a valid request: {error}", hint="Use the drainer version of the drain."
            ) from None

    def _tell(self, answer: Answer) -> None:
        self.wfile.write(encode(answer) + b"\n")


def peer(connection: socket.socket, otherwise: int) -> tuple[int, int]:
    """The pid and uid of the process at the other end. Where the system doesn't report them, the
    pid is 0 and the uid ``otherwise``: owner and mode of the socket have decided on the user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, otherwise
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return pid, uid
