"""Secrets are in nothing that a command writes, however it ends; nor are keys that are masked."""

from __future__ import annotations

import json

import pytest

from command.conftest import distinct
from command.process import Command, Outcome
from drainer.mask import VARIABLE, key_repr
from kafka.topic import PASSWORD, USER, Topic
from scenarios.brokers import Broker

LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}")
SECRET = "hush"  # is in every one of them
LOUD = ("--log-format", "json", "--debug", "-o", "json", "--report", "report.html")
FAILS = """
import drainer

class Fails(drainer.Handler):
    def open(self, context):
        self.token = context.options["token"]

    async def handle(self, sub):
        secret = self.token
        raise LookupError("the document is locked")
"""


def written(command: Command, *outcomes: Outcome) -> bytes:
    """All that was said, and every file that was left behind but the handler's own record."""
    said = "".join(outcome.out + outcome.err for outcome in outcomes).encode()
    return said + b"".join(path.read_bytes() for path in command.folder.rglob("*"))


def test_a_drain_that_fails_writes_no_secret_anywhere(command: Command, broker: Broker) -> None:
    topic = command.topic(distinct(20))
    config = command.home / "client.properties"
    config.write_text("\n".join([*LOGIN, f"sasl.password={PASSWORD}"]))
    handlers = command.home / "fails.py"
    handlers.write_text(FAILS)
    where = ["-b", broker.sasl_bootstrap_servers, "--client-config", str(config)]
    secrets = ["-X", f"ssl.key.password={SECRET}-2", "--set", f"token={SECRET}-3"]
    what = ["--topic", topic.name, "--group", "g", "--from", "earliest", "--yes", "--retries", "1"]
    failing = [
        "--handler",
        f"{handlers}:Fails",
        "--on-failure",
        "dead-letter",
        "--max-failures",
        "3",
    ]
    failing += ["--max-doubt", "0"]

    outcome = command.start("run", *what, *failing, *where, *secrets, *LOUD).ends(5)

    found = written(command, outcome)
    assert b"LookupError" in found
    assert SECRET.encode() not in found


@pytest.mark.parametrize(
    "words",
    [
        ("-X", f"sasl.password={SECRET}"),
        ("-X", f"sasl.password={PASSWORD}", "-X", "sasl.mechanism=NONE"),
        ("-X", "ssl.key.location=nowhere.pem", "-X", f"ssl.key.password={SECRET}"),
        ("-X", f"ssl.key.pem=-----BEGIN {SECRET}"),
        ("--set", f"{SECRET}-without-a-name"),
    ],
    ids=lambda words: words[1].replace(SECRET, "SECRET"),
)
def test_what_is_refused_shows_no_secret(
    command: Command, broker: Broker, words: tuple[str, ...]
) -> None:
    what = ["--topic", "t", "--group", "g", "--handler", "count", "--yes", "--debug"]
    login = [word for line in LOGIN for word in ("-X", line)]
    where = ["-b", broker.sasl_bootstrap_servers]

    outcome = command.start("run", *what, *where, *login, *words).ended()

    assert outcome.code in {2, 3}
    assert SECRET.encode() not in written(command, outcome)


PERSON = "ann@example.com"
NAMES = f"""
import json
import drainer

class Names(drainer.Handler):
    def split(self, message):
        yield drainer.SubMessage(json.loads(message.value)[0], "{PERSON}")

    async def handle(self, sub):
        raise LookupError(f"no account of {{sub.key}}: {{sub!r}}")
"""


def test_masked_keys_and_error_texts_are_in_nothing_that_is_shown(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic: Topic = command.topic()
    topic.produce([json.dumps([PERSON])] * 40, key=PERSON.encode())
    handlers = command.home / "names.py"
    handlers.write_text(NAMES)
    env = {VARIABLE: "a secret of this test"}
    dead = ["--dead-letter-topic", f"{topic.name}.dead", "-b", command.bootstrap]
    what = ["--topic", topic.name, "--group", "g", "--from", "earliest", "-b", command.bootstrap]
    what += ["--handler", f"{handlers}:Names"]
    run = ["run", *what, "--yes", "--retries", "0", "--plan"]
    letters = ["--on-failure", "dead-letter", "--max-failures", "none", "--no-breaker", *dead[:2]]

    told = [
        command("inspect", *what, env=env),
        command("inspect", *what, "-o", "json", "--report", "inspect.html", env=env),
        command("estimate", *what, "--latency", "1ms", env=env),
        command("estimate", *what, "--latency", "1ms", "-o", "json", env=env),
        command(*run, "halts", *LOUD[:2], "-o", "json", "--report", "halts.html", env=env, code=5),
        command("plan", "undo", "halts", "--yes", env=env),
        command(*run, "dies", *letters, "-o", "json", "--report", "dies.html", env=env, code=6),
        command("dead", "list", *dead, env=env),
        command("dead", "list", *dead, "-o", "json", env=env),
        command("dead", "show", "0:0", *dead, env=env),
        command("dead", "show", "0:0", *dead, "-o", "json", env=env),
    ]

    found = written(command, *told)
    assert b"ann@" not in found
    monkeypatch.setenv(VARIABLE, env[VARIABLE])
    mask = key_repr(PERSON)
    assert all(mask in told[place].out + told[place].err for place in (0, 1, 4, 7, 8, 9, 10))
    assert PERSON in command("dead", "list", *dead).out
    with_filter = command("dead", "list", *dead, "--sub-key", PERSON, "-o", "json", env=env)
    assert with_filter.answer["matching"] == 40
