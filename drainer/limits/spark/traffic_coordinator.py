"""The connection between the driver and the tasks that host traffic.

A task sends a report, and the driver answers with its order: at once if the order is new to the
task, and otherwise after a moment. A task that gets no answer for a second stops its traffic. So
all traffic ends with the driver, however the driver ends.

First, both sides prove that they know the same token (``multiprocessing.connection``). After that,
they exchange JSON. Nothing that comes over the connection is ever unpickled.
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

from drainer.control.serving import QuietServer
from drainer.errors import DrainerError, Interrupted
from drainer.limits.search.reading import TrafficReport
from drainer.limits.search.trial import Point
from drainer.model.codec import convert
from drainer.spark.session.failure import error_of

REPORT_S = 0.25  # The time between two reports of a task while the order stays the same.
SILENCE_S = 1.0  # A task that gets no answer for this long stops its traffic.
CONNECT_S = 10.0
GREETING_S = 5.0  # The time in which a peer has to prove that it knows the token.
MESSAGE_BYTES_MOST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """What the tasks have to do until the next order."""

    number: int
    point: Point | None = None  # The traffic of all tasks together; None for no traffic.
    skips: int = 0  # The number of times that the groups skipped what they had not read yet.
    over: bool = False  # Whether the tasks have to end.


def connect(address: tuple[str, int], token: str) -> Connection:
    """Connect a task to the driver. Raises Interrupted when the driver can't be reached."""
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
    """Return the error that a task raises when its driver is gone."""
    return Interrupted("the driver is gone: the traffic has stopped")


class TrafficCoordinator(QuietServer, TCPServer):
    """The driver's end of the connections: it listens on ``bind``, with a thread for each task.

    It hangs up on a peer that does not know ``token``. ``take`` is called with the number of a task
    and its report, in the thread of that task. ``lost`` is the reason why the traffic can't go on:
    a task reported a failure, or is gone.

    Raises Interrupted when it can't listen.
    """

    def __init__(self, bind: str, tasks: int, take: Callable[[int, TrafficReport], None]) -> None:
        self.token = secrets.token_urlsafe(24)
        self.lost: DrainerError | None = None
        self.order = TrafficOrder(1)
        self.connected = set[int]()  # The numbers of the tasks that are connected.
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

    def give(
        self, point: Point | None = None, *, skip: bool = False, over: bool = False
    ) -> TrafficOrder:
        """Send all tasks the next order at once, and return it.

        Without a ``point``, producers send nothing. If it ``skip``s, consumers go to the ends of
        the logs. If it is ``over``, the tasks end.
        """
        with self._ordered:
            before = self.order
            self.order = TrafficOrder(before.number + 1, point, before.skips + skip, over)
            self._ordered.notify_all()
            return self.order

    def close(self) -> None:
        """Order all tasks to end, and accept no more connections.

        A busy task gets the order later.
        """
        self.give(over=True)
        self.shutdown()
        self.server_close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one task, in a thread of its own, until it is gone or the traffic is over."""
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
                    return  # Spark has restarted a task that failed. The traffic can't continue.
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
    with suppress(OSError):  # The peer may have left already.
        peer.shutdown(socket.SHUT_RDWR)
