"""The line between the driver and the tasks that host traffic: reports one way, orders the other.

A task sends a report, and the driver answers with its order: at once when that is new to the task,
else after a moment. A task without an answer for a second stops its traffic, so the traffic ends
with the driver, however that ends.

Both ends prove that they know the token before anything else (``multiprocessing.connection``).
What follows is JSON: nothing that comes over the line is ever unpickled.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from socketserver import BaseRequestHandler, TCPServer
from typing import Any

import msgspec

from drainer.errors import DrainerError, Interrupted
from drainer.limits.search.reading import TrafficReport
from drainer.limits.search.trial import Point
from drainer.model.codec import convert
from drainer.serving import QuietServer
from drainer.spark.session.failure import error_of

REPORT_S = 0.25  # between two reports of a task while the order stays the same
SILENCE_S = 1.0  # without an answer a task stops its traffic
CONNECT_S = 10.0
GREETING_S = 5.0
MESSAGE_BYTES_MOST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """The traffic that tasks make until the next order."""

    number: int
    point: Point | None = None  # the traffic of all tasks; None for none
    skips: int = 0  # how often the groups had to skip what they had not read yet
    over: bool = False


def connect(address: tuple[str, int], token: str) -> Connection:
    """A task's end of the line. Raises Interrupted when the driver is not there."""
    host, port = address
    try:
        peer = socket.create_connection(address, timeout=CONNECT_S)
    except OSError as error:
        raise Interrupted(
            f"a task can't reach the driver at {host}:{port}: {error.strerror or error}",
            hint="Let executors reach the driver on every port (spark.driver.host).",
        ) from None
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line = Connection(peer.detach())
    try:
        answer_challenge(line, token.encode())
        deliver_challenge(line, token.encode())
    except (AuthenticationError, EOFError, OSError):
        line.close()
        raise driver_gone() from None
    return line


def driver_gone() -> Interrupted:
    return Interrupted("the driver is gone: the traffic has stopped")


class TrafficCoordinator(QuietServer, TCPServer):
    """The driver's end: listens on ``bind`` for so many tasks, with a thread for each.

    It hangs up on a peer that doesn't know ``token``. ``take`` is called in one of the threads with
    the number of a task and its report. ``lost`` is why the traffic can't go on: a failure that a
    task reported, or that it is gone. Raises Interrupted when it can't listen.
    """

    def __init__(self, bind: str, tasks: int, take: Callable[[int, TrafficReport], None]) -> None:
        self.token = secrets.token_urlsafe(24)
        self.lost: DrainerError | None = None
        self.order = TrafficOrder(1)
        self.connected = set[int]()  # numbers of tasks
        self._take = take
        self._ordered = threading.Condition()
        self.address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self.request_queue_size = tasks + 8
        try:
            super().__init__((bind, 0), BaseRequestHandler)
        except OSError as error:
            raise Interrupted(
                f"can't listen on {bind} for the tasks: {error.strerror}",
                hint="Set spark.driver.bindAddress to an address of this machine.",
            ) from None
        self.port: int = self.socket.getsockname()[1]
        name = "traffic-coordinator"
        threading.Thread(target=self.serve_forever, args=(0.1,), name=name, daemon=True).start()

    def give(self, order: TrafficOrder) -> None:
        """Orders something else, at once."""
        with self._ordered:
            self.order = order
            self._ordered.notify_all()

    def close(self) -> None:
        """Orders the end, and takes no more connections; a busy task gets that order later."""
        self.give(TrafficOrder(self.order.number + 1, over=True))
        self.shutdown()
        self.server_close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serves one connection, in a thread of its own, until the peer is gone or it is over."""
        task: int | None = None
        late = threading.Timer(GREETING_S, _hang_up, [request])
        late.daemon = True
        late.start()
        try:
            with Connection(os.dup(request.fileno())) as line:
                request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                deliver_challenge(line, self.token.encode())
                answer_challenge(line, self.token.encode())
                if self.lost is not None:
                    return  # Spark tries again what has failed
                task = int(line.recv_bytes(MESSAGE_BYTES_MOST))
                late.cancel()
                self.connected.add(task)
                self._serve(task, line)
        finally:
            late.cancel()
            if task is not None:
                self.connected.discard(task)
                if not self.order.over:
                    self.lost = self.lost or Interrupted(
                        f"task {task} of the traffic is gone", hint="See Spark's log."
                    )

    def _serve(self, task: int, line: Connection) -> None:
        known = TrafficOrder(0)
        while not known.over:
            message = msgspec.json.decode(line.recv_bytes(MESSAGE_BYTES_MOST))
            if "failure" in message:
                self.lost = self.lost or error_of(message["failure"])
                return
            self._take(task, convert(message, TrafficReport))
            known = self._next_order(known)
            line.send_bytes(msgspec.json.encode(known))

    def _next_order(self, known: TrafficOrder) -> TrafficOrder:
        with self._ordered:
            self._ordered.wait_for(lambda: self.order != known, REPORT_S)
            return self.order


def _hang_up(peer: socket.socket) -> None:
    with suppress(OSError):  # which has left already
        peer.shutdown(socket.SHUT_RDWR)
