"""Cuts a partition's log as an unclean election does, so that its last records are gone."""

from __future__ import annotations

import struct

from scenarios.brokers import Broker

_BATCH = struct.Struct(">qi")  # The base offset, and the length of what follows.


def cut_log(broker: Broker, topic: str, partition: int, offset: int) -> None:
    """Kill the broker, take the batches from ``offset`` on out of its log, and start it again.

    The batch before must end there, and the log must have one segment.
    """
    broker.kill()
    folder = broker.folder / "data" / f"{topic}-{partition}"
    [log] = folder.glob("*.log")
    with log.open("r+b") as file:
        while len(head := file.read(_BATCH.size)) == _BATCH.size:
            base, length = _BATCH.unpack(head)
            if base >= offset:
                file.seek(-_BATCH.size, 1)
                break
            file.seek(length, 1)
        file.truncate()
    for index in (*folder.glob("*index"), *folder.glob("*.snapshot")):
        index.unlink()
    broker.start()
