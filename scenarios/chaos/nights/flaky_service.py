"""The handler ``http`` and a service that fails in all the ways that services have."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from drainer.errors import EXIT_DONE
from scenarios.chaos.drain import until
from scenarios.chaos.nights.account import Call, seen
from scenarios.chaos.nights.lot import Lot, keys, record
from scenarios.chaos.stage import Report, Stage

HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
FAILS = 0.25  # of the answers
PER_ITEM_S = 0.002


class Service:
    """A service that acknowledges all of a batch, a part of it or nothing, and notes what it saw.

    An item counts as done for the service as soon as it decides to acknowledge it: what it did
    before a lost answer comes again. ``caller`` is the number of the drain that calls.
    """

    def __init__(self, chance: random.Random) -> None:
        self.calls: list[Call] = []
        self.faults: Counter[str] = Counter()
        self.caller = 0
        self._busy = 0  # calls
        self._chance, self._lock = chance, threading.Lock()
        service = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.answer(self, body["batch"])

            def do_OPTIONS(self) -> None:
                self.sends(204, b"")

            def sends(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                if body:
                    self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/drain"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: Any, items: list[dict[str, Any]]) -> None:
        """Note the items, work on them, and answer by chance."""
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
                request.sends(self._chance.choice([200, 502]), HTML, "text/html")
            case "503" | "429":
                request.sends(int(how), b"{}")
            case "cut":
                request.close_connection = True
            case "torn":
                request.send_response(200)
                request.send_header("Content-Type", "application/json")
                request.send_header("Content-Length", str(len(body)))
                request.end_headers()
                request.wfile.write(body[: len(body) // 2])
                request.close_connection = True
            case _:
                request.sends(200, body)

    def next_caller(self) -> None:
        """The calls of the drain that has ended are over, too."""
        until(lambda: not self._busy)
        self.caller += 1

    def _note(self, mark: str, items: list[dict[str, Any]], caller: int) -> None:
        for item in items:
            _, partition, offset, index = item["id"].rsplit(":", 3)
            place = int(partition), int(offset), int(index)
            self.calls.append(Call(mark, place, item["key"], caller))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def running(chance: random.Random) -> Iterator[Service]:
    made = Service(chance)
    try:
        yield made
    finally:
        made.close()


def flaky_service(stage: Stage) -> Report:
    """Answers acknowledge a part, are HTML, torn, cut off or 503: no operation is lost."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot, running(random.Random(chance.random())) as service:
        names = keys(chance)
        lot.write([record(chance, names) for _ in range(300 if stage.short else 1_000)])
        lot.handler_words = ("--handler", "http", "--split", "documents", "--split-key", "id")
        batch = chance.choice([2, 20, 100])
        lot.words = ("--set", f"url={service.url}", "--set", f"batch={batch}")
        lot.words += ("--retries", "1000", "--retry-delay", "20ms", "--retry-max-delay", "100ms")
        lot.words += ("--max-outage", "5m")

        lot.progress = lambda: len(service.calls)
        lot.takes_its_course(stage, report, EXIT_DONE, after=service.next_caller)
        account = seen(service.calls, lot.expected)
        lost_answers = batch * lot.pace.concurrency * (report.times + service.faults["torn"])
        account.judge(report, lost_answers)
        lot.check_group(report)
        report.remarks.append(f"faults: {service.faults.total()} {dict(service.faults)}")
    return report
