"""A broker that comes back as the only one of its cluster, and knows of none: not even itself.

A program, for librdkafka may end the process that sends it requests. It stands for a real one that
was frozen for some seconds, which answers so once in some twenty times.
"""

from __future__ import annotations

import socket
import threading
from struct import pack, unpack
from typing import BinaryIO

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings

METADATA, API_VERSIONS = 3, 18
UNKNOWN_TOPIC, UNSUPPORTED = 3, 35
HOST = "127.0.0.1"


class Lonely:
    """Speaks as much of Kafka's protocol as an admin client needs."""

    def __init__(self) -> None:
        self.knows_itself = True
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        requests: BinaryIO = client.makefile("rb")
        while size := requests.read(4):
            request = requests.read(*unpack(">i", size))
            key, version, number = unpack(">hhi", request[:8])
            if key == METADATA:
                body = self._metadata(request[8:])
            else:
                assert key == API_VERSIONS
                known = pack(">hhhhhh", API_VERSIONS, 0, 0, METADATA, 4, 4)
                body = pack(">hi", UNSUPPORTED if version else 0, 2) + known
            client.sendall(pack(">ii", 4 + len(body), number) + body)

    def _metadata(self, request: bytes) -> bytes:
        (client_id,) = unpack(">h", request[:2])
        topics = request[2 + client_id + 4 : -1]  # one at most, with its length before it
        itself = pack(">ii", 1, 1) + _text(HOST) + pack(">ih", self.port, -1)
        brokers = itself if self.knows_itself else pack(">i", 0)
        found = pack(">i", 0)
        if topics:
            found = pack(">ih", 1, UNKNOWN_TOPIC) + topics + b"\0" + pack(">i", 0)
        controller = pack(">i", 1 if self.knows_itself else -1)
        return pack(">i", 0) + brokers + _text("a-cluster") + controller + found


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


if __name__ == "__main__":
    broker = Lonely()
    with Cluster.connect(ClientSettings.load(f"{HOST}:{broker.port}")) as cluster:
        broker.knows_itself = False
        cluster.ensure_answers(5)
        print(cluster.cluster_id)
