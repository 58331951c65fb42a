"""Cases of services that echo what they are sent, and of plans that have more in them than drainer
writes."""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from scenarios.trust.case import Ended, Stage, case, ensure

TOKEN, USER, PASSWORD = "T0ken/of+a=service-9f2", "ann", 'Hu"sh & pass/word é 7'
LOGIN = f"{USER}:{PASSWORD}"
FORMS = (
    *(each for secret in (TOKEN, PASSWORD) for each in (secret, json.dumps(secret)[1:-1])),
    *(quote(secret, safe="") for secret in (TOKEN, PASSWORD)),
    *(b64encode(secret.encode()).decode().rstrip("=") for secret in (TOKEN, LOGIN)),
)
DEBUG = {"DRAINER_DEBUG": "1"}
LOUD = ("--tune", "log-format=json", "-o", "json", "--report", "report.html")
# The whole output of a command has at most this many bytes, which are a few screens.
SCREEN_BYTES = 20_000


class Echo(BaseHTTPRequestHandler):
    """Answers each call with an error that has all headers, as they are and encoded."""

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        login = self.headers.get("Authorization") or ""
        secrets = [login, quote(login, safe=""), login.removeprefix("Bearer ")]
        data = json.dumps({"error_code": 500, "message": secrets, "path": self.path}).encode()
        self.send_response(500, login.encode("latin-1", "replace").decode("latin-1"))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.do_POST()

    def do_OPTIONS(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def echoing() -> Iterator[str]:
    """Provide a service that echoes, and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def ensure_no_secret(stage: Stage, ended: Ended, echoed: str = "500") -> None:
    """Ensure that the echo came through, and that no stream or file has a secret."""
    ensure(echoed in ended.out + ended.err, f"no echo: {ended.text[-500:]}")
    written = {"the output": ended.out + ended.err}
    for path in stage.folder.rglob("*"):
        if path.is_file() and path.suffix != ".properties":
            written[path.name] = path.read_bytes().decode(errors="replace")
    for name, text in written.items():
        for form in FORMS:
            ensure(form not in text, f"{name} has {form}")


@case(
    "a service that answers with the headers that it was sent",
    before="http.token was in the log, the error, the report and what on-end got",
)
def echoed_token(stage: Stage) -> str:
    config = stage.folder / "client.properties"
    topic = stage.topic(20)
    with echoing() as url:
        dead = ("--set", "500=give-up", "--on-failure", "dead-letter")
        for group, login, code, policy in (
            ("halts", f"http.token={TOKEN}\n", 5, ("--on-failure", "halt")),
            ("dead", f"http.user={USER}\nhttp.password={PASSWORD}\n", 6, dead),
        ):
            config.write_text(login, encoding="utf-8")
            more = ["--client-config", str(config), "--set", f"url={url}/?q=1", *LOUD]
            more += [
                "--tune",
                f"on-end=cat > end-{group}.json",
                "--tune",
                "max-doubt=0",
                "--retries",
                "1",
            ]
            own = ("--plan", f"{group}.json", "--max-failures", "none", *policy)
            ended = stage.drain(topic, "http", *more, *own, group=group, code=code, env=DEBUG)
            ensure_no_secret(stage, ended)
        letters = ("--dead-letter-topic", f"{topic}.{group}.dead", "-b", stage.bootstrap)
        ensure_no_secret(stage, stage.drainer("dead", "list", *letters, "-o", "json"))
    return "*** stands in its place, whatever it was encoded in"


@case(
    "a schema registry that answers with the headers that it was sent",
    before="the login was shown in base64",
)
def echoed_login(stage: Stage) -> str:
    config = stage.folder / "client.properties"
    topic = stage.topic([(b"k", b"\0\0\0\0\1x")] * 3)
    with echoing() as url:
        config.write_text(
            f"schema.registry.url={url}\nschema.registry.basic.auth.user.info={LOGIN}\n",
            encoding="utf-8",
        )
        more = ("--client-config", str(config), "--value-format", "avro", *LOUD)
        ended = stage.drain(topic, "count", *more, code=3, env=DEBUG)
        ensure_no_secret(stage, ended)
    return "*** stands in its place"


def forged(plan: Path, **changes: Any) -> None:
    """Change a plan in the way of somebody who can compute its digest, too."""
    body = msgspec.json.decode(plan.read_bytes())
    body.pop("digest")
    body |= changes
    digest = hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
    plan.write_bytes(msgspec.json.encode({**body, "digest": f"sha256:{digest}"}))


@case(
    "a plan with megabytes in one text, or 500,000 events",
    before="9.4 MB of error; plan show took 1 GB",
)
def endless_plan(stage: Stage) -> str:
    plan = stage.folder / "p.json"
    stage.drain(stage.topic(3), "count", "--plan", str(plan))
    good = plan.read_bytes()
    body = msgspec.json.decode(good)
    long = "x" * 9_000_000
    event = body["history"][0]
    changed: list[dict[str, Any]] = [
        {"format": long},
        {"group": long},
        {"claims": {long: {}}},
        {"history": [event] * 200_000},
        {"history": [{**event, "details": [long]}]},
        {"history": [{**event, "by": long}]},
        {"parked_lanes": {"total": 1, "first": [{"key": long, "place": "", "error": ""}]}},
    ]
    for changes in changed:
        plan.write_bytes(good)
        forged(plan, **changes)
        for words in (("plan", "show"), ("plan", "history"), ("resume",)):
            ended = stage.drainer(*words, str(plan), code=3)
            printed = len(ended.out + ended.err)
            ensure(printed < SCREEN_BYTES, f"{[*changes]}: {printed:,} bytes")
    plan.write_bytes(good)
    forged(plan, options={"note": long})
    shown = stage.drainer("plan", "show", str(plan), "-o", "json", code=None)
    consent = stage.drainer("resume", str(plan), code=None)
    ensure(shown.code == 0, shown.text[-500:])
    ensure(len(consent.err) < SCREEN_BYTES, f"{len(consent.err):,} bytes before the question")
    return "refused in a few lines"
