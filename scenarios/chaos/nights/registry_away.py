"""A random night in which a schema registry goes away and comes back while Avro is drained."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from drainer.errors import EXIT_DONE, EXIT_REFUSED
from scenarios.chaos.nights.account import seen, traced
from scenarios.chaos.nights.lot import Lot, Record, keys, record
from scenarios.chaos.nights.server import HTML, TEXT, Request, serving
from scenarios.chaos.stage import Report, Stage

SCHEMAS = 40
AWAY_S = 1.5


class Registry:
    """A registry with schemas of one shape. ``how`` is the way in which it is away, if it is."""

    def __init__(self) -> None:
        self.how = ""
        self.faults: Counter[str] = Counter()

    def respond(self, request: Request) -> None:
        """Answer a request for a schema, or fail in the way of ``how``."""
        number = int(request.path.partition("?")[0].rpartition("/")[2])
        self.faults[self.how] += 1
        match self.how:
            case "":
                request.sends(200, json.dumps({"schema": schema(number)}).encode())
            case "html":
                request.sends(200, b"<html>log in</html>", HTML)
            case "404":  # A proxy answers this, although the schema may be there.
                request.sends(404, b"not found", TEXT)
            case "503":
                request.sends(503, b'{"error_code": 50301, "message": "away"}')
            case "cut":
                request.close_connection = True

    @contextmanager
    def flickering(self, chance: random.Random) -> Iterator[None]:
        """Go away and come back by turns, until the block ends."""
        over = threading.Event()

        def flicker() -> None:
            while not over.wait(chance.uniform(0, AWAY_S)):
                self.how = chance.choice(["html", "404", "503", "cut"]) if not self.how else ""

        flickering = threading.Thread(target=flicker)
        flickering.start()
        try:
            yield
        finally:
            over.set()
            flickering.join()


def schema(number: int) -> str:
    items = {"type": "array", "items": "string"}
    fields = [{"name": "documents", "type": items}]
    return json.dumps({"type": "record", "name": f"R{number}", "fields": fields})


def encoded(number: int, texts: Sequence[str]) -> bytes:
    """Encode a value as Confluent's serialiser does: as one block of an array, by Avro's
    specification."""
    parts = [_zigzag(len(texts)), *(_zigzag(len(each)) + each.encode() for each in texts)]
    return b"\0" + number.to_bytes(4) + b"".join(parts) + (b"\0" if texts else b"")


def _zigzag(number: int) -> bytes:
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def registry_away(stage: Stage) -> Report:
    """Let the registry be away, or answer with a proxy's page or a login page, by turns. No message
    may be given up."""
    report = Report(0)
    chance = stage.chance
    registry = Registry()
    with Lot.of(stage) as lot, serving(registry.respond) as url:
        names = keys(chance)

        def in_avro(made: Record, number: int) -> Record:
            return replace(made, value=encoded(number, list(made.sub_keys or ())))

        count = 400 if stage.short else 1_200
        lot.write(  # another schema every now and then, so that it is needed all the time
            [
                in_avro(record(chance, names), 1 + number * SCHEMAS // count)
                for number in range(count)
            ]
        )
        lot.handled_by("TracedDecoded")
        lot.words_of_run += ("--value-format", "avro", "--registry", url)
        lot.words += ("--tune", "max-outage=5m")
        with registry.flickering(random.Random(chance.random())):
            lot.takes_its_course(stage, report, EXIT_DONE, also=(EXIT_REFUSED,))
        seen(traced(lot.trace), lot.expected).judge(report, lot.most_repeated(report))
        lot.check_group(report)
        faults = registry.faults - Counter({"": registry.faults[""]})
        report.remarks.append(f"faults: {faults.total()} {dict(faults)}")
    return report
