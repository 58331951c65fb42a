"""The line between the driver and the tasks that host traffic: orders one way, reports the other.

The driver repeats its order all the time, and a task to which none comes for a second stops its
traffic. So the traffic ends with the driver, however that ends.

Both ends prove that they know the token before anything else (``multiprocessing.connection``).
What follows is JSON: nothing that comes over the line is ever unpickled.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import msgspec

from drainer.errors import DrainerError, Interrupted
from drainer.limits.search.reading import Report
from drainer.limits.search.trial import Point
from drainer.model.codec import convert
from drainer.spark.failure import error_of

REPEAT_S = 0.2  # between two orders
SILENCE_S = 1.0  # without any a task stops its traffic
CONNECT_S = 10.0
GREETING_S = 5
CLOSE_S = 2.0
SAID_BYTES = 1024 * 1024

Take = Callable[[int, Report], None]


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """What to do until the next one."""

    number: int
    point: Point | None = None  # the traffic to make, of all tasks; None for none
    skips: int = 0  # how often the groups had to skip what they had not read yet
    over: bool = False


def connect(address: tuple[str, int], token: str) -> Connection:
    """A task's end of the line. Raises Interrupted when the driver is not there."""
    host, port = address
    try:
        reached = socket.create_connection(address, timeout=CONNECT_S)
    except OSError as error:
        raise Interrupted(
            f"a task can't reach the driver at {host}:{port}: {error.strerror or error}",
            hint="Let executors reach the driver on every port (spark.driver.host).",
        ) from None
    reached.settimeout(None)
    reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line = Connection(reached.detach())
    try:
        answer_challenge(line, token.encode())
        deliver_challenge(line, token.encode())
    except (AuthenticationError, EOFError, OSError):
        line.close()
        raise driver_gone() from None
    return line


def driver_gone() -> Interrupted:
    return Interrupted("the driver is gone: the traffic has stopped")


class TrafficCoordinator:
    """The driver's end: listens on ``bind`` for so many tasks, in threads of its own.

    It hangs up on who doesn't know ``token``. ``take`` is called in one of the threads with the
    number of a task and what it reports. ``lost`` is why the traffic can't go on: what a task said
    of it, or that it is gone.
    """

    def __init__(self, bind: str, tasks: int, take: Take) -> None:
        self.token = secrets.token_urlsafe(24)
        self.port = 0
        self.lost: DrainerError | None = None
        self.order = TrafficOrder(1)
        self._bind = bind
        self._tasks = tasks
        self._take = take
        self._lines: dict[int, tuple[socket.socket, Connection]] = {}
        self._saying = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="traffic-coordinator", daemon=True)

    @property
    def here(self) -> int:
        """How many tasks are connected."""
        return len(self._lines)

    def open(self) -> None:
        """Raises Interrupted when it can't listen."""
        family = socket.AF_INET6 if ":" in self._bind else socket.AF_INET
        try:
            self._server = socket.create_server(
                (self._bind, 0), family=family, backlog=self._tasks + 8
            )
        except OSError as error:
            raise Interrupted(
                f"can't listen on {self._bind} for the tasks: {error.strerror}",
                hint="Set spark.driver.bindAddress to an address of this machine.",
            ) from None
        self._server.settimeout(REPEAT_S)
        self.port = self._server.getsockname()[1]
        self._thread.start()

    def give(self, order: TrafficOrder) -> None:
        """Orders something else, at once."""
        self.order = order
        self._say()

    def close(self) -> None:
        """Says that it is over, and hangs up on who hasn't left."""
        if not self._thread.is_alive():
            return
        self.give(TrafficOrder(self.order.number + 1, over=True))
        until_s = time.monotonic() + 2 * REPEAT_S  # for the last order to arrive
        while self._lines and time.monotonic() < until_s:
            time.sleep(REPEAT_S / 10)
        self._closing.set()
        self._thread.join(CLOSE_S)
        with self._saying:
            for reached, _ in self._lines.values():
                _hang_up(reached)

    def _serve(self) -> None:
        with self._server:
            while not self._closing.is_set():
                with suppress(OSError):  # no task came, or it has left again
                    reached, _ = self._server.accept()
                    threading.Thread(target=self._greet, args=(reached,), daemon=True).start()
                self._say()

    def _say(self) -> None:
        with self._saying:
            said = msgspec.json.encode(self.order)  # in here: an older one must not come later
            for reached, line in self._lines.values():
                try:
                    line.send_bytes(said)
                except OSError:  # gone, or it has read nothing for long
                    _hang_up(reached)

    def _greet(self, reached: socket.socket) -> None:
        task: int | None = None
        with reached, Connection(os.dup(reached.fileno())) as line:
            try:
                reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _set_patience(reached, socket.SO_SNDTIMEO, GREETING_S)
                _set_patience(reached, socket.SO_RCVTIMEO, GREETING_S)
                deliver_challenge(line, self.token.encode())
                answer_challenge(line, self.token.encode())
                if self.lost is not None:
                    return  # Spark tries again what has failed
                task = int(line.recv_bytes(SAID_BYTES))
                _set_patience(reached, socket.SO_RCVTIMEO, 0)
                with self._saying:
                    self._lines[task] = reached, line
                self._listen(task, line)
            except (AuthenticationError, EOFError, OSError, ValueError, msgspec.DecodeError):
                pass  # gone, or a stranger
            finally:
                if task is not None:
                    self._let_go(task)

    def _let_go(self, task: int) -> None:
        with self._saying:
            self._lines.pop(task, None)
        if not self.order.over:
            self.lost = self.lost or Interrupted(
                f"task {task} of the traffic is gone", hint="See Spark's log."
            )

    def _listen(self, task: int, line: Connection) -> None:
        while True:
            said = msgspec.json.decode(line.recv_bytes(SAID_BYTES))
            if "failure" in said:
                self.lost = self.lost or error_of(said["failure"])
                return
            self._take(task, convert(said, Report))


def _set_patience(reached: socket.socket, option: int, seconds: int) -> None:
    reached.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def _hang_up(reached: socket.socket) -> None:
    with suppress(OSError):  # who has left already
        reached.shutdown(socket.SHUT_RDWR)
