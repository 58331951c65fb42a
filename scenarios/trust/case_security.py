"""Rights, secrets and personal data."""

from __future__ import annotations

import os

from drainer.demo.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from drainer.mask import VARIABLE
from scenarios.trust.case import Stage, case, insist
from scenarios.trust.rights import ATTEMPTS, strict_broker, try_rights

SHOWN = 24  # beside the numbered faults: what the page on security promises
PERSON, SECRET = "ann@example.com", "hush"
NAMES = """
import drainer

class Names(drainer.Handler):
    async def handle(self, sub):
        raise LookupError(f"no account of {sub.key}")
"""


@case(
    SHOWN,
    "the least Kafka rights are enough, and a missing one is named",
    before="inspect with all it needs: 'FindCoordinator response error: Group authorization"
    " failed', now and then; without DESCRIBE on the group: 'the cluster is reachable, but slow'",
)
def rights(stage: Stage) -> str:
    tried = {attempt.command: attempt for attempt in ATTEMPTS}
    with strict_broker(stage.folder / "broker") as broker:
        for command in ("inspect", "run"):
            inside = Stage(broker, stage.folder / command)
            inside.folder.mkdir()
            try_rights(inside, tried[command])
    return "inspect and run work with the table's rights; each missing one is refused by its name"


@case(
    SHOWN,
    "no secret is shown",
    before="--set hush: error: --set 'hush' is no name=value",
)
def secrets(stage: Stage) -> str:
    what = ["--topic", "t", "--group", "g", "--handler", "count", "-b", stage.bootstrap]
    for words in (["--set", SECRET], ["-X", SECRET], ["-X", f"ssl.key.pem={SECRET}"]):
        refused = stage.drainer("run", *what, *words, "--debug")
        insist(refused.returncode in {2, 3}, f"{words}: exit {refused.returncode}")
        insist(SECRET not in refused.stderr, f"{words}: {refused.stderr}")
    return "what can't be read is refused, and not shown"


@case(
    SHOWN,
    "personal data can be masked",
    before="keys and error texts are in the log, the report and the list of dead letters",
)
def masked(stage: Stage) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    fill(settings, topic, [(PERSON.encode(), b"{}", 0)] * 20)
    (stage.folder / "names.py").write_text(NAMES)
    env = {**os.environ, VARIABLE: "a secret of this case"}
    what = ["--topic", topic, "--group", "g", "--from", "earliest", "-b", stage.bootstrap]
    dead = ["--dead-letter-topic", f"{topic}.dead", "-b", stage.bootstrap]
    run = ["run", *what, "--handler", "names.py:Names", "--retries", "0", "--max-failures", "none"]
    run += [
        "--on-failure",
        "dead-letter",
        "--no-breaker",
        "--yes",
        *dead[:2],
        "--report",
        "report.html",
    ]
    told = [
        stage.drainer("inspect", *what, "--handler", "names.py:Names", env=env),
        stage.drainer(*run, "--log-format", "json", "--json", env=env),
        stage.drainer("dead", "list", *dead, env=env),
        stage.drainer("dead", "show", "0:0", *dead, env=env),
    ]
    insist([one.returncode for one in told] == [0, 6, 0, 0], told[-1].stderr)
    shown = "".join(one.stdout + one.stderr for one in told)
    shown += (stage.folder / "report.html").read_text()
    insist("ann@" not in shown, "a key is shown")
    insist("key#" in shown, "no mask is shown")
    return "inspect, log, report and dead letters show key#… in its place"
