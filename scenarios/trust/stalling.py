"""A proxy before a broker that delays one request, like a broker that stalls at that moment."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from drainer.sandbox.ports import HOST

STALL_S = 5.0  # This is longer than drainer waits before it tries again.
LIST_OFFSETS = 2  # The number of the request in Kafka's protocol.
_HEAD = struct.Struct(">ih")  # The size of a request, and its kind.


class StallingProxy:
    """Passes on what clients send to a broker, except for one question about offsets of a topic.

    Attributes:
        port: where it listens.
        requested: how often the topic's offsets were requested.
    """

    def __init__(self, broker_port: int) -> None:
        self.requested = 0
        self._broker_port = broker_port
        self._topic, self._number = b"", 0
        self._over = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._begin(self._accept)

    @classmethod
    @contextmanager
    def before(cls, broker_port: int) -> Iterator[StallingProxy]:
        """Listen until the end of the block."""
        proxy = cls(broker_port)
        try:
            yield proxy
        finally:
            proxy._over.set()
            proxy._listener.shutdown(socket.SHUT_RDWR)
            proxy._listener.close()

    def stall(self, topic: str, number: int) -> None:
        """Let question ``number`` (from 1) about the topic wait for ``STALL_S``."""
        self._topic, self._number, self.requested = topic.encode(), number, 0

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((HOST, self._broker_port))
                self._begin(partial(self._request, client, broker))
                self._begin(partial(self._answer, broker, client))

    def _request(self, client: socket.socket, broker: socket.socket) -> None:
        with client.makefile("rb") as stream, suppress(OSError):
            while len(head := stream.read(_HEAD.size)) == _HEAD.size:
                size, question = _HEAD.unpack(head)
                rest = stream.read(size - 2)
                if question == LIST_OFFSETS and self._topic and self._topic in rest:
                    self.requested += 1
                    if self.requested == self._number:
                        self._over.wait(STALL_S)
                broker.sendall(head + rest)
        _close(broker)

    def _answer(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                client.sendall(data)
        _close(client)

    def _begin(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, daemon=True).start()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
