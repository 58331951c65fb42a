"""Cases of plans that name services and registries of a stranger, which must get no login."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from drainer.model.terms import PayloadSettings
from scenarios.trust.case import Ended, Stage, case, ensure
from scenarios.trust.case_plantrust import change_plan

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]})
ORDERS = [(b"k", b"\0\0\0\0\1\2" + each) for each in (b"a", b"b", b"c")]
TOKEN, USER, PASSWORD = "t0ken-of-mine", "me", "pass-of-mine"
LOGINS = f"http.token={TOKEN}\nschema.registry.basic.auth.user.info={USER}:{PASSWORD}\n"
SENT = (TOKEN, PASSWORD, b64encode(f"{USER}:{PASSWORD}".encode()).decode())


class Recorder:
    """A registry and a service on one port, which record what they were sent.

    ``status`` is the status that the service answers.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.status = 204
        recorder = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode()
                recorder.requests.append(f"{self.command} {self.path}\n{self.headers}\n{body}")
                schema = json.dumps({"schema": SCHEMA}).encode() if self.command == "GET" else b""
                self.send_response(200 if schema else recorder.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(schema)))
                self.end_headers()
                self.wfile.write(schema)

            def do_POST(self) -> None:
                self.do_GET()

            def do_OPTIONS(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.service = f"{self.url}/drain"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def has_login(self) -> bool:
        return any(each in request for request in self.requests for each in SENT)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    try:
        yield made
    finally:
        made.close()


def halted(stage: Stage, mine: Recorder, *more: str) -> tuple[Path, Ended]:
    """Make the plan of a drain by ``mine``, which halts at its first call. Return it, and how the
    drain ended."""
    plan, mine.status = stage.folder / "p.json", 400
    config = stage.folder / stage.file(
        "client.properties", f"bootstrap.servers={stage.bootstrap}\n{LOGINS}"
    )
    words = (
        "--value-format",
        "avro",
        "--retries",
        "0",
        "--tune",
        "breaker=off",
        "--plan",
        str(plan),
    )
    ended = stage.drain(
        stage.topic(ORDERS),
        *("http", "--set", f"url={mine.service}", "--registry", mine.url),
        *(*words, "--client-config", str(config), *more),
        code=5,
    )
    ensure(mine.has_login, "the service that its user names got no login")
    mine.status = 204
    return plan, ended


def of(registry: str) -> PayloadSettings:
    return PayloadSettings(value_format="avro", registry=registry)


@case(
    "a mailed plan names a service and a registry, and the client file has logins for such",
    before="the question named neither; after y both got the logins, over the client file's own",
)
def mailed_destinations(stage: Stage) -> str:
    with recorder() as mine, recorder() as evil:
        plan, _ = halted(stage, mine)
        for changes, place in (
            ({"options": {"url": evil.service}}, evil.service),
            ({"payloads": of(evil.url)}, evil.url),
        ):
            own = {"options": {"url": mine.service}, "payloads": of(mine.url)} | changes
            change_plan(plan, **own)
            named = ("--set", f"url={mine.service}") if "payloads" in changes else ()
            theirs = stage.drainer("resume", str(plan), "--yes", *named, code=None)
            ensure(not evil.requests, f"it sent {evil.requests}")
            ensure(theirs.code == 3 and place in theirs.err, theirs.err)
            ensure("only the plan names" in theirs.err, theirs.err)
        change_plan(plan, options={"url": evil.service}, payloads=of(evil.url))
        words = ("--set", f"url={mine.service}", "--registry", mine.url)
        stage.drainer("resume", str(plan), "--dry-run", "--yes", *words)
        config = stage.folder / "client.properties"
        lines = f"http.url={mine.service}\nschema.registry.url={mine.url}\n"
        config.write_text(config.read_text(encoding="utf-8") + lines, encoding="utf-8")
        ended = stage.drainer("resume", str(plan), "--yes")
        ensure(not evil.requests, f"it sent {evil.requests}")
        ensure(f"not {evil.service}, which the plan names" in ended.text, ended.err)
        ensure(sum(each.startswith("POST") for each in mine.requests) == 1 + len(ORDERS), "calls")
    return "refused until the client file or the command line names them, whose own are used"


@case(
    "a mailed plan without logins: the question before it is used",
    before="it showed brokers and handler, and no other address",
)
def destinations_are_shown(stage: Stage) -> str:
    with recorder() as mine, recorder() as evil:
        plan, ended = halted(stage, mine)
        resumed = stage.drainer(*ended.way_out("resume"), "--dry-run", "--yes")
        ensure(mine.url in resumed.text, "the printed command does not name what gets the login")
        config = stage.folder / "client.properties"
        config.write_text(f"bootstrap.servers={stage.bootstrap}\n", encoding="utf-8")
        change_plan(plan, options={"url": evil.service, "404": "skip"}, payloads=of(evil.url))
        question = stage.drainer("resume", str(plan), code=3)
        for text in (evil.service, f"registry   {evil.url}", "404=skip", "gets no login"):
            ensure(
                " ".join(text.split()) in question.text, f"{text!r} is not shown: {question.err}"
            )
        ensure(not evil.requests, f"it sent {evil.requests}")
        stage.drainer("resume", str(plan), "--yes")
        ensure(evil.requests and not evil.has_login, "it got a login")
    return "each service, registry, decoder, option and topic is shown, and gets no login"
