"""The Spark tasks of ``drainer limits``. Each runs a part of the clients by the driver's orders.

A task stops its traffic at once when the driver is gone, or when no order comes for a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import msgspec
import pyarrow as pa

from drainer.errors import DrainerError, Interrupted
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.traffic import (
    PRODUCERS_MEASURED,
    ClientStatistics,
    GroupReader,
    PacedProducer,
    Pacer,
    Readers,
    TrafficTargets,
    make_payloads,
)
from drainer.limits.search.reading import TrafficReport
from drainer.limits.search.trial import Point
from drainer.limits.spark.traffic_coordinator import SILENCE_S, TrafficOrder, connect, driver_gone
from drainer.spark.session.failure import carrying, error_as_json

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Hosting:
    """The function that Spark runs in each task. It returns the task's number once it has ended."""

    client: ClientSettings
    targets: TrafficTargets
    tasks: int  # The number of tasks.
    address: tuple[str, int]  # Where the driver listens.
    token: str = field(repr=False)  # A task proves by it to the driver that it belongs to the run.

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            for batch in numbers:
                Host(self, batch["id"][0].as_py()).run()
                yield batch


class Host:
    """A running task: its producers and consumers, and its connection to the driver."""

    def __init__(self, hosting: Hosting, task: int) -> None:
        self._hosting = hosting
        self._task = task
        self._order = TrafficOrder(0, skips=-1)
        self._ready = False
        self._statistics = ClientStatistics()
        self._consumed = [0] * hosting.targets.groups
        self._pacer, self._readers = Pacer([]), Readers([], self._consumed)
        self._pool: list[bytes] = []
        # How many messages of earlier producers were acknowledged, and how many failed.
        self._past = (0, 0)
        self._acknowledged = 0
        self._silences = 0

    def run(self) -> None:
        """Carry out orders until the driver ends the traffic.

        Raises Interrupted when the driver is gone, or when the clients can't go on.
        """
        try:
            with connect(self._hosting.address, self._hosting.token) as line:
                _send(line, self._task)
                try:
                    self._serve(line)
                except DrainerError as error:
                    # Spark reports the error, too, but later.
                    with suppress(Interrupted):
                        _send(line, {"failure": error_as_json(error)})
                    raise
        finally:
            self._halt_producers()
            self._readers.halt()

    def _serve(self, line: Connection) -> None:
        while True:
            _send(line, self._report())
            sent_s, silent = time.monotonic(), False
            while (order := _receive(line)) is None:
                if not silent and time.monotonic() - sent_s > SILENCE_S:
                    silent = True
                    self._silences += 1
                    self._halt_producers()
                self._ensure_working()
            if order.over:
                return
            if silent or order.number != self._order.number:
                self._carry_out(order)
            self._ensure_working()

    def _carry_out(self, order: TrafficOrder) -> None:
        self._halt_producers()
        if order.skips != self._order.skips:
            self._readers.halt()
            self._readers = self._make_readers()
            self._readers.start()
        self._order = order
        if order.point is not None:
            self._pacer = self._make_pacer(order.point)
            self._pacer.connect()
            self._statistics.take()
            self._pacer.start()
        self._ready = True

    def _make_pacer(self, point: Point) -> Pacer:
        hosting, places = self._hosting, self._hosting.targets.all
        if not self._pool or len(self._pool[0]) != point.message_bytes:
            self._pool = make_payloads(point.message_bytes, hosting.targets.payload)
        # Producers are numbered across all tasks, so that each begins at a different partition.
        first = range(self._task, point.producers, hosting.tasks)
        return Pacer(
            [
                PacedProducer(
                    hosting.client,
                    places,
                    point,
                    self._pool,
                    number * len(places) // point.producers,
                    self._statistics if index < PRODUCERS_MEASURED else None,
                )
                for index, number in enumerate(first)
            ]
        )

    def _make_readers(self) -> Readers:
        hosting = self._hosting
        places, groups = hosting.targets.all, hosting.targets.groups
        members = max(1, hosting.tasks // max(1, groups))  # The number of consumers of each group.
        readers: list[tuple[int, GroupReader]] = []
        for unit in range(self._task, groups * members, hosting.tasks):
            group, member = divmod(unit, members)
            name = f"{hosting.targets.topics[0]}.{group + 1}"
            readers.append((group, GroupReader(hosting.client, name, places[member::members])))
        return Readers(readers, self._consumed)

    def _halt_producers(self) -> None:
        self._ready = False
        self._pacer.halt()
        self._past = self._sent()
        self._acknowledged = self._past[0]
        self._pacer = Pacer([])  # Without a reference to them, the producers' connections close.

    def _sent(self) -> tuple[int, int]:
        """Return how many messages of all producers so far were acknowledged, and failed."""
        acknowledged, errors = self._past
        return acknowledged + self._pacer.acknowledged, errors + self._pacer.errors

    def _ensure_working(self) -> None:
        for clients in (self._pacer, self._readers):
            clients.ensure_working()

    def _report(self) -> TrafficReport:
        acknowledged, errors = self._sent()
        self._acknowledged = max(self._acknowledged, acknowledged)
        return TrafficReport(
            at_s=time.monotonic(),
            order=self._order.number,
            ready=self._ready,
            acknowledged=self._acknowledged,
            errors=errors,
            consumed=tuple(self._consumed),
            busy_s=time.process_time(),
            silences=self._silences,
            **self._statistics.take(),
        )


def _send(line: Connection, message: object) -> None:
    try:
        line.send_bytes(msgspec.json.encode(message))
    except OSError:
        raise driver_gone() from None


def _receive(line: Connection) -> TrafficOrder | None:
    """Return the driver's next order; None if none comes within POLL_S.

    Raises Interrupted if the driver is gone.
    """
    try:
        if line.poll(POLL_S):
            return msgspec.json.decode(line.recv_bytes(), type=TrafficOrder)
    except (EOFError, OSError):
        raise driver_gone() from None
    return None
