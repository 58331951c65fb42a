"""Cases of rights, secrets and personal data."""

from __future__ import annotations

import os
from pathlib import Path

from drainer.text.mask import VARIABLE
from scenarios.trust.case import Stage, case, ensure
from scenarios.trust.rights import ATTEMPTS, strict_broker, try_rights
from scenarios.trust.shells import SHELLS, press_tab

PERSON, SECRET = "ann@example.com", "hush"
NAMES = """
import drainer

class Names(drainer.Handler):
    async def handle(self, sub):
        raise LookupError(f"no account of {sub.key}")
"""


@case(
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


@case("no secret is shown", before="--set hush: error: --set 'hush' is no name=value")
def secrets(stage: Stage) -> str:
    what = ["--topic", "t", "--group", "g", "--handler", "count", "-b", stage.bootstrap]
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    login += ["-X", "sasl.username=u"]
    for words in (
        ["--set", SECRET],
        ["-X", SECRET],
        ["-X", f"ssl.key.pem=-----BEGIN {SECRET}"],
        [*login, "-X", f"sasl.password={SECRET}"],
        [*login, "-X", f"sasl.password={SECRET}", "-X", "sasl.mechanism=NONE"],
        ["-X", "ssl.key.location=nowhere.pem", "-X", f"ssl.key.password={SECRET}"],
    ):
        refused = stage.drainer("--debug", "run", *what, *words, "--yes", code=None)
        ensure(refused.code in {2, 3}, f"{words[0]}: exit {refused.code}")
        ensure(SECRET not in refused.text, f"{words}: {refused.text}")
    return "what can't be read is refused, and not shown"


@case(
    "personal data can be masked",
    before="keys and error texts are in the log, the report and the list of dead letters",
)
def masked(stage: Stage) -> str:
    topic = stage.topic([(PERSON.encode(), b"{}")] * 20)
    env = {VARIABLE: "a secret of this case"}
    what = ["--topic", topic, "--group", "g", "--from", "earliest", "-b", stage.bootstrap]
    handler = f"{stage.file('names.py', NAMES)}:Names"
    dead = ["--dead-letter-topic", f"{topic}.dead", "-b", stage.bootstrap]
    letters = ("--tune", f"dead-letter-topic={topic}.dead")
    policy = ("--retries", "0", "--max-failures", "none", "--on-failure", "dead-letter")
    output = ("--report", "report.html", "--tune", "log-format=json", "-o", "json")
    more = (*policy, "--tune", "breaker=off", *letters, *output)
    looks = [*what, "--handler", handler]
    halts = ("--plan", "halts", "--retries", "0", "--report", "halts.html", "-o", "json")
    ended = [
        stage.drainer("inspect", *looks, env=env),
        stage.drainer("estimate", *looks, "--latency", "1ms", env=env),
        stage.drain(topic, handler, *halts, group="g", env=env, code=5),
        stage.drainer("plan", "undo", "halts", "--yes", env=env),
        stage.drain(topic, handler, *more, group="g", env=env, code=6),
        stage.drainer("dead", "list", *dead, env=env),
        stage.drainer("dead", "show", "0:0", *dead, env=env),
        stage.drainer("dead", "show", "0:0", *dead, "-o", "json", env=env),
    ]
    shown = "".join(one.out + one.err for one in ended)
    pages = list(stage.folder.glob("*.html"))
    ensure(len(pages) == 2, f"reports: {pages}")
    ensure("ann@" not in shown + "".join(map(Path.read_text, pages)), "a key is shown")
    ensure(all("key#" in ended[n].text for n in (0, 2, 5, 6, 7)), "no mask is shown")
    ensure(PERSON in stage.drainer("dead", "list", *dead).text, "without the variable, keys are")
    chosen = stage.drainer("dead", "list", *dead, "--sub-key", PERSON, "-o", "json", env=env)
    ensure(chosen.answer["matching"] == 20, "a filter does not find the key")
    return "inspect, log, report and dead letters show key#… in its place"


@case(
    "a group named evil\\$(touch ran), and TAB",
    before="zsh ran it when TAB was pressed after --group ev; bash inserted it as it was",
)
def no_name_runs_at_tab(stage: Stage) -> str:
    ensure(SHELLS, "there is no shell to press TAB in")
    topic = stage.topic()
    with stage.cluster() as cluster:
        for name in ("vil\\$(touch ran)", "vil`touch ran`", "vil\n$(touch ran)", "venings"):
            cluster.alter_committed(f"{topic}-e{name}", topic, {0: 0})
    for shell in SHELLS:
        line, shows = f"drainer inspect --group {topic}-e", f"{topic}-evenings"
        screen = press_tab(shell, stage.folder, stage.bootstrap, line, shows)
        ensure("evil" not in screen, f"{shell} offers it: {screen!r}")
        ensure(not (stage.folder / "ran").exists(), f"{shell} ran it")
    return f"not offered, in {' and '.join(SHELLS)}"


@case(
    "a forged plan in the folder, and ps",
    before="ps did not read plans; a stranger's must not be offered for a resume",
)
def no_forged_plan_is_offered(stage: Stage) -> str:
    topic = stage.topic([(b"k", b"{}")] * 20)
    handler = stage.file("fails.py", "def handle(sub):\n    raise ValueError\n")
    stage.drain(topic, handler, code=5)
    [plan] = stage.folder.glob("*.plan.json")
    resume = f"resume: drainer resume {plan.name}"
    ensure(resume in stage.drainer("ps").text, "it is not offered")
    os.mkfifo(stage.folder / "fifo.plan.json")
    plan.chmod(0o666)
    ensure(
        resume not in stage.drainer("ps", within_s=60).text,
        "it is offered though any user can write it",
    )
    return "only plans that no other user could have written"
