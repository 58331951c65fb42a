"""A task of ``drainer limits``: it hosts its share of the traffic, as the driver orders.

It stops at once when the driver is gone, and when no order comes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import msgspec

from drainer.errors import DrainerError, Interrupted
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.traffic import (
    PRODUCERS_MEASURED,
    ClientStatistics,
    GroupReader,
    OldReader,
    OldReaders,
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
    """The tasks themselves, as Spark sends them; each gives its number when it is over."""

    client: ClientSettings
    places: TrafficTargets
    tasks: int
    address: tuple[str, int]
    token: str = field(repr=False)  # proves to the driver that it is one of its own

    def __call__(self, numbers: Iterable[int]) -> Iterator[int]:
        with carrying():
            for number in numbers:
                Host(self, number).run()
                yield number


class Host:
    """One task at work."""

    def __init__(self, hosting: Hosting, task: int) -> None:
        self._hosting = hosting
        self._task = task
        self._order = TrafficOrder(0, skips=-1)
        self._ready = False
        self._statistics = ClientStatistics()
        self._consumed = [0] * hosting.places.groups
        self._pacer, self._readers = Pacer([]), Readers([], self._consumed)
        self._old, self._old_share = OldReaders([]), 0.0  # of what one group reads of old messages
        self._pool: list[bytes] = []
        self._past = (0, 0)  # acknowledged and refused, of producers that are gone
        self._acknowledged = 0
        self._silences = 0

    def run(self) -> None:
        """Serves until the driver ends the traffic.

        Raises Interrupted when the driver is gone, or the clients can't go on.
        """
        try:
            with connect(self._hosting.address, self._hosting.token) as line:
                _send(line, self._task)
                try:
                    self._serve(line)
                except DrainerError as error:
                    with suppress(Interrupted):  # Spark reports it, too, but later
                        _send(line, {"failure": error_as_json(error)})
                    raise
        finally:
            self._halt_producers()
            self._readers.halt()
            self._old.halt()

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
        if not self._order.number and self._hosting.places.old_topic:
            self._old, self._old_share = self._make_old_readers()
            self._old.start()
        self._order = order
        if order.point is not None:
            self._pacer = self._make_pacer(order.point)
            self._pacer.connect()
            self._statistics.take()
            self._pacer.start()
            self._old.set_pace(self._old_share * order.point.bytes_per_s)
        self._ready = True

    def _make_pacer(self, point: Point) -> Pacer:
        hosting, places = self._hosting, self._hosting.places.all
        if not self._pool or len(self._pool[0]) != point.message_bytes:
            self._pool = make_payloads(point.message_bytes, hosting.places.sample)
        # Producers of one task lie apart, and those of all tasks don't meet.
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
        places, groups = hosting.places.all, hosting.places.groups
        members = max(1, hosting.tasks // max(1, groups))  # of each group
        readers: list[tuple[int, GroupReader]] = []
        for unit in range(self._task, groups * members, hosting.tasks):
            group, member = divmod(unit, members)
            name = f"{hosting.places.topics[0]}.{group + 1}"
            readers.append((group, GroupReader(hosting.client, name, places[member::members])))
        return Readers(readers, self._consumed)

    def _make_old_readers(self) -> tuple[OldReaders, float]:
        """Readers of this task's share of the old messages, and that share of one group's."""
        hosting, places = self._hosting, self._hosting.places
        of_groups: dict[int, list[tuple[str, int]]] = {}
        numbers = range(places.old_groups)
        units = [(group, place) for group in numbers for place in places.old_partitions]
        own = units[self._task :: hosting.tasks]
        for group, place in own:
            of_groups.setdefault(group, []).append((places.old_topic, place))
        name = f"{places.topics[0]}.old"
        readers = [OldReader(hosting.client, name, its) for its in of_groups.values()]
        return OldReaders(readers), len(own) / len(places.old_partitions)

    def _halt_producers(self) -> None:
        self._ready = False
        self._pacer.halt()
        self._old.set_pace(0)
        self._past = self._sent()
        self._acknowledged = self._past[0]
        self._pacer = Pacer([])  # producers go with their last reference

    def _sent(self) -> tuple[int, int]:
        """Messages that were acknowledged and refused, of producers that are gone as well."""
        acknowledged, errors = self._past
        return acknowledged + self._pacer.acknowledged, errors + self._pacer.errors

    def _ensure_working(self) -> None:
        for clients in (self._pacer, self._readers, self._old):
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
            old_bytes=self._old.read_bytes,
            **self._statistics.take(),
        )


def _send(line: Connection, message: object) -> None:
    try:
        line.send_bytes(msgspec.json.encode(message))
    except OSError:
        raise driver_gone() from None


def _receive(line: Connection) -> TrafficOrder | None:
    """The driver's answer, if it comes within a moment. Raises Interrupted."""
    try:
        if line.poll(POLL_S):
            return msgspec.json.decode(line.recv_bytes(), type=TrafficOrder)
    except (EOFError, OSError):
        raise driver_gone() from None
    return None
