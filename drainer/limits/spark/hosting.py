"""What a task of ``drainer limits`` does: it hosts its share of the traffic, as the driver orders.

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
    LISTENED_TO,
    GroupReader,
    Looks,
    OldReader,
    OldReaders,
    PacedProducer,
    Pacer,
    Places,
    Readers,
    payloads,
)
from drainer.limits.search.reading import Report
from drainer.limits.search.trial import Point
from drainer.limits.spark.traffic_coordinator import (
    SILENCE_S,
    TrafficOrder,
    connect,
    driver_gone,
)
from drainer.spark.failure import carrying, said_of

LOOK_S = 0.05
REPORT_S = 0.25


@dataclass(frozen=True, slots=True)
class Hosting:
    """The tasks themselves, as Spark sends them; each gives its number when it is over."""

    client: ClientSettings
    places: Places
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
        self._order = TrafficOrder(0)
        self._ready = False
        self._looks = Looks()
        self._producers: list[PacedProducer] = []
        self._pacer: Pacer | None = None
        self._readers: Readers | None = None
        self._old: OldReaders | None = None
        self._old_share = 0.0  # of what one group reads of old messages
        self._pool: list[bytes] = []
        self._past = (0, 0)  # acknowledged and refused, of producers that are gone
        self._acknowledged = 0
        self._consumed = [0] * hosting.places.groups
        self._silences = 0

    def run(self) -> None:
        """Serves until the driver says that it is over.

        Raises Interrupted when the driver is gone, or the clients can't go on.
        """
        try:
            with connect(self._hosting.address, self._hosting.token) as line:
                self._send(line, self._task)
                try:
                    self._serve(line)
                except DrainerError as error:
                    with suppress(Interrupted):  # Spark reports it, too, but later
                        self._send(line, {"failure": said_of(error)})
                    raise
        finally:
            self._halt_producers()
            self._halt_readers()
            if self._old is not None:
                self._old.halt()

    def _serve(self, line: Connection) -> None:
        order_s, due_s, silent = time.monotonic(), 0.0, False
        while True:
            if (order := _latest(line)) is not None:
                order_s = time.monotonic()
                if order.over:
                    return
                if silent or order.number != self._order.number:
                    silent = False
                    self._carry_out(order)
            elif not silent and time.monotonic() - order_s > SILENCE_S:
                silent = True
                self._silences += 1
                self._halt_producers()
            self._insist_on_clients()
            if time.monotonic() >= due_s:
                self._send(line, self._report())
                due_s = time.monotonic() + REPORT_S

    def _carry_out(self, order: TrafficOrder) -> None:
        self._halt_producers()
        if self._readers is None or order.skips != self._order.skips:
            self._halt_readers()
            self._readers = self._begin_to_read()
        if self._old is None and self._hosting.places.old_topic:
            self._old = self._begin_to_read_old()
        self._order = order
        if order.point is not None:
            self._begin_to_send(order.point)
        self._ready = True

    def _begin_to_send(self, point: Point) -> None:
        hosting, places = self._hosting, self._hosting.places.all
        if not self._pool or len(self._pool[0]) != point.message_bytes:
            self._pool = payloads(point.message_bytes, hosting.places.sample)
        count = share(point.producers, hosting.tasks, self._task)
        for number in range(count):
            self._producers.append(
                PacedProducer(
                    hosting.client,
                    places,
                    point,
                    self._pool,
                    # Those of one task lie apart, and those of all don't meet.
                    (self._task + number * hosting.tasks) * len(places) // point.producers,
                    self._looks if number < LISTENED_TO else None,
                )
            )
        for producer in self._producers:
            producer.connect()
        self._looks.take()
        self._pacer = Pacer(self._producers)
        self._pacer.start()
        if self._old is not None:
            self._old.hold(self._old_share * point.bytes_per_s)

    def _begin_to_read(self) -> Readers:
        hosting = self._hosting
        places, groups = hosting.places.all, hosting.places.groups
        members = max(1, hosting.tasks // max(1, groups))  # of each group
        readers: list[tuple[int, GroupReader]] = []
        for unit in range(self._task, groups * members, hosting.tasks):
            group, member = divmod(unit, members)
            name = f"{hosting.places.topics[0]}.{group + 1}"
            readers.append((group, GroupReader(hosting.client, name, places[member::members])))
        begun = Readers(readers, self._consumed)
        begun.start()
        return begun

    def _begin_to_read_old(self) -> OldReaders:
        hosting, places = self._hosting, self._hosting.places
        of_groups: dict[int, list[tuple[str, int]]] = {}
        numbers = range(places.old_groups)
        units = [(group, place) for group in numbers for place in places.old_partitions]
        own = units[self._task :: hosting.tasks]
        for group, place in own:
            of_groups.setdefault(group, []).append((places.old_topic, place))
        self._old_share = len(own) / len(places.old_partitions)
        name = f"{places.topics[0]}.old"
        begun = OldReaders([OldReader(hosting.client, name, its) for its in of_groups.values()])
        begun.start()
        return begun

    def _halt_producers(self) -> None:
        self._ready = False
        if self._pacer is not None:
            self._pacer.halt()
            self._pacer = None
        if self._old is not None:
            self._old.hold(0)
        self._past = self._sent()
        self._acknowledged = self._past[0]
        self._producers = []  # they go with their last reference

    def _sent(self) -> tuple[int, int]:
        """How many messages were acknowledged and refused, of producers that are gone as well."""
        acknowledged, errors = self._past
        return (
            acknowledged + sum(each.acknowledged for each in self._producers),
            errors + sum(each.errors for each in self._producers),
        )

    def _halt_readers(self) -> None:
        if self._readers is not None:
            self._readers.halt()
            self._readers = None

    def _insist_on_clients(self) -> None:
        for thread in (self._pacer, self._readers, self._old):
            if thread is not None and thread.failure is not None:
                raise thread.failure
        for producer in self._producers:
            producer.insist()

    def _report(self) -> Report:
        acknowledged, errors = self._sent()
        self._acknowledged = max(self._acknowledged, acknowledged)
        return Report(
            at_s=time.monotonic(),
            order=self._order.number,
            ready=self._ready,
            acknowledged=self._acknowledged,
            errors=errors,
            consumed=tuple(self._consumed),
            busy_s=time.process_time(),
            silences=self._silences,
            old_bytes=0 if self._old is None else self._old.read_bytes,
            **self._looks.take(),
        )

    def _send(self, line: Connection, said: object) -> None:
        try:
            line.send_bytes(msgspec.json.encode(said))
        except OSError:
            raise driver_gone() from None


def _latest(line: Connection) -> TrafficOrder | None:
    """What was ordered last, after a moment's wait; None when nothing was. Raises Interrupted."""
    said = None
    try:
        while line.poll(0.0 if said else LOOK_S):
            said = line.recv_bytes()
    except (EOFError, OSError):
        raise driver_gone() from None
    return None if said is None else msgspec.json.decode(said, type=TrafficOrder)


def share(whole: int, tasks: int, task: int) -> int:
    """How many of the whole one task has when they are spread evenly."""
    return whole // tasks + (task < whole % tasks)
