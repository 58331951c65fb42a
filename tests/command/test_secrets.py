"""Secrets are in nothing that a command writes, however it ends; nor are keys that are masked."""

from __future__ import annotations

from command.conftest import distinct
from command.process import Command, Outcome
from kafka.topic import PASSWORD, USER
from scenarios.brokers import Broker

LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}")
SECRET = "hush"  # is in every one of them
LOUD = ("--tune", "log-format=json", "-o", "json", "--report", "report.html")
FAILS = """
import drainer

class Fails(drainer.Handler):
    def open(self, context):
        self.tokens = context.options["token"], context.extras("http.")["token"]

    async def handle(self, sub):
        secrets = self.tokens
        raise LookupError("the document is locked")
"""


def written(command: Command, *outcomes: Outcome) -> bytes:
    """All that was printed, and every file that was left behind but the handler's own record."""
    output = "".join(outcome.out + outcome.err for outcome in outcomes).encode()
    return output + b"".join(path.read_bytes() for path in command.folder.rglob("*"))


def test_a_drain_that_fails_writes_no_secret_anywhere(command: Command, broker: Broker) -> None:
    topic = command.topic(distinct(20))
    config = command.home / "client.properties"
    login = [*LOGIN, f"sasl.password={PASSWORD}", f"http.token={SECRET}-4"]
    config.write_text("\n".join(login))
    handlers = command.home / "fails.py"
    handlers.write_text(FAILS)
    where = ["-b", broker.sasl_bootstrap_servers, "--client-config", str(config)]
    secrets = ["-X", f"ssl.key.password={SECRET}-2", "--set", f"token={SECRET}-3"]
    what = ["--topic", topic.name, "--group", "g", "--from", "earliest", "--yes", "--retries", "1"]
    failing = ["--handler", f"{handlers}:Fails", "--on-failure", "dead-letter"]
    failing += ["--max-failures", "3", "--tune", "max-doubt=0"]

    outcome = command.start("--debug", "run", *what, *failing, *where, *secrets, *LOUD).ends(5)

    found = written(command, outcome)
    assert b"LookupError" in found
    assert SECRET.encode() not in found
