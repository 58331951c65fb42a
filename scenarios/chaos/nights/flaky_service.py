"""A random night with the handler ``http`` and a service that fails in all the ways that services
fail."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from typing import Any

from drainer.errors import EXIT_DONE
from scenarios.chaos.drain import until
from scenarios.chaos.nights.account import Call, seen
from scenarios.chaos.nights.lot import Lot, keys, record
from scenarios.chaos.nights.server import HTML, Request, serving
from scenarios.chaos.stage import Report, Stage

PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
FAILS = 0.25  # This share of the answers fails.
PER_ITEM_S = 0.002


class Service:
    """A service that acknowledges all of a batch, a part of it or nothing, and notes what it saw.

    An item counts as done for the service as soon as it decides to acknowledge it. So what it did
    before an answer was lost comes again. ``caller`` is the number of the drain that calls.
    """

    def __init__(self, chance: random.Random) -> None:
        self.calls: list[Call] = []
        self.faults: Counter[str] = Counter()
        self.caller = 0
        self._busy = 0  # The calls that are under way.
        self._chance, self._lock = chance, threading.Lock()

    def respond(self, request: Request) -> None:
        """Note the items of a batch, work on them, and answer by chance."""
        items = json.loads(request.body)["batch"]
        with self._lock:
            caller = self.caller
            self._busy += 1
            self._note("+", items, caller)
            how = "all"
            if self._chance.random() < FAILS:
                how = self._chance.choice(["part", "missing", "html", "503", "429", "cut", "torn"])
                self.faults[how] += 1
            kept = {"all": 1.0, "part": 0.5, "torn": 1.0}.get(how, 0.0)
            done = [item for item in items if self._chance.random() < kept]
        threading.Event().wait(PER_ITEM_S * len(items))
        with self._lock:
            self._note("-", done, caller)
            self._note("x", [item for item in items if item not in done], caller)
            self._busy -= 1
        result = {item["id"]: "done" for item in done}
        results = [{"id": item["id"], "result": result.get(item["id"], "retry")} for item in items]
        body = json.dumps({"results": results}).encode()
        match how:
            case "missing":
                request.sends(200, json.dumps({"results": results[1:]}).encode())
            case "html":
                request.sends(self._chance.choice([200, 502]), PAGE, HTML)
            case "503" | "429":
                request.sends(int(how), b"{}")
            case "cut":
                request.close_connection = True
            case "torn":
                request.sends(200, body, part=0.5)
            case _:
                request.sends(200, body)

    def next_caller(self) -> None:
        """Note that a drain has ended, and its calls with it."""
        until(lambda: not self._busy)
        self.caller += 1

    def _note(self, mark: str, items: list[dict[str, Any]], caller: int) -> None:
        for item in items:
            _, partition, offset, index = item["id"].rsplit(":", 3)
            place = int(partition), int(offset), int(index)
            self.calls.append(Call(mark, place, item["key"], caller))


def flaky_service(stage: Stage) -> Report:
    """Answer with a part of the results, with HTML, with torn or cut answers, or with 503. No
    operation may be lost."""
    report = Report(0)
    chance = stage.chance
    service = Service(random.Random(chance.random()))
    with Lot.of(stage) as lot, serving(service.respond) as url:
        names = keys(chance)
        lot.write([record(chance, names) for _ in range(300 if stage.short else 1_000)])
        lot.handler_words = ("--handler", "http")
        lot.words_of_run += ("--split", "documents", "--key", "payload.id")
        batch = chance.choice([2, 20, 100])
        lot.words = ("--set", f"url={url}/drain", "--set", f"batch={batch}")
        lot.words += (
            "--retries",
            "1000",
            "--tune",
            "retry-delay=20ms",
            "--tune",
            "retry-max-delay=100ms",
        )
        lot.words += ("--tune", "max-outage=5m")

        lot.progress = lambda: len(service.calls)
        lot.takes_its_course(stage, report, EXIT_DONE, after=service.next_caller)
        account = seen(service.calls, lot.expected)
        lost_answers = batch * lot.pace.concurrency * (report.times + service.faults["torn"])
        account.judge(report, lost_answers)
        lot.check_group(report)
        report.remarks.append(f"faults: {service.faults.total()} {dict(service.faults)}")
    return report
