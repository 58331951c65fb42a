"""Rights, secrets and personal data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from drainer.control.place import socket_name
from drainer.demo.fill import create_topic, fill
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.mask import VARIABLE
from scenarios.trust.case import Stage, case, insist
from scenarios.trust.rights import ATTEMPTS, strict_broker, try_rights
from scenarios.trust.shells import SHELLS, press_tab

SHOWN = 24  # beside the numbered faults: what the page on security promises
PERSON, SECRET = "ann@example.com", "hush"
NAMES = """
import drainer

class Names(drainer.Handler):
    async def handle(self, sub):
        raise LookupError(f"no account of {sub.key}")
"""
PLAN_AT_URI = "s3://backlogs/orders.plan.json"
NOBODY = "65534"
STRANGER = """
import os, socket, sys, threading, time

def drip(peer):
    while True:
        peer.sendall(b" ")
        time.sleep(0.5)

def lie(peer):
    peer.sendall(b'{"told": ["paused"]}\\n')

def serve(name, answer):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{sys.argv[1]}/{name}")
    listening.listen()
    threading.Thread(target=accept, args=(listening, answer)).start()

def accept(listening, answer):
    while True:
        threading.Thread(target=answer, args=listening.accept()[:1]).start()

for number in range(20):
    serve(f"drip-{number}.sock", drip)
serve(sys.argv[2], lie)
print("ready", flush=True)
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
        stage.drainer(*run, "--log-format", "json", "-o", "json", env=env),
        stage.drainer("dead", "list", *dead, env=env),
        stage.drainer("dead", "show", "0:0", *dead, env=env),
    ]
    insist([one.returncode for one in told] == [0, 6, 0, 0], told[-1].stderr)
    shown = "".join(one.stdout + one.stderr for one in told)
    shown += (stage.folder / "report.html").read_text()
    insist("ann@" not in shown, "a key is shown")
    insist("key#" in shown, "no mask is shown")
    return "inspect, log, report and dead letters show key#… in its place"


@case(
    SHOWN,
    "a group named evil\\$(touch ran), and TAB",
    before="zsh ran it when TAB was pressed after --group ev; bash inserted it as it was",
)
def no_name_runs_at_tab(stage: Stage) -> str:
    insist(SHELLS, "there is no shell to press TAB in")
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    with Cluster.connect(settings, 60) as cluster:
        for name in ("vil\\$(touch ran)", "vil`touch ran`", "vil\n$(touch ran)", "venings"):
            cluster.alter_committed(f"{topic}-e{name}", topic, {0: 0})
    for shell in SHELLS:
        line, shows = f"drainer inspect --group {topic}-e", f"{topic}-evenings"
        screen = press_tab(shell, stage.folder, stage.bootstrap, line, shows)
        insist("evil" not in screen, f"{shell} offers it: {screen!r}")
        insist(not (stage.folder / "ran").exists(), f"{shell} ran it")
    return f"not offered, in {' and '.join(SHELLS)}"


@case(
    SHOWN,
    "another user's control sockets, and root's ps and pause",
    before="a byte now and then held up ps for ever; pause of a plan at a URI believed any user",
)
def strangers_sockets(stage: Stage) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can become another user"
    folder = Path(f"/tmp/drainer-{NOBODY}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    os.chown(folder, int(NOBODY), int(NOBODY))
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    words += [sys.executable, "-c", STRANGER, str(folder), socket_name(PLAN_AT_URI)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(words, stdout=pipe, stderr=null) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        try:
            listed = stage.drainer("ps", "-o", "json", timeout_s=60)
            insist(listed.returncode == 0, listed.stderr)
            found = [each for each in json.loads(listed.stdout)["drains"] if not each["pid"]]
            silent = sum(each["state"] == "silent" for each in found)
            insist(silent > 20, f"{silent} drains of the stranger are listed as silent")
            paused = stage.drainer("pause", PLAN_AT_URI)
            insist(paused.returncode == 3, f"pause ends with {paused.returncode}: {paused.stderr}")
            named = stage.drainer("pause", PLAN_AT_URI, "--user", NOBODY)
            insist(named.returncode == 0, named.stderr)
        finally:
            stranger.kill()
            shutil.rmtree(folder, ignore_errors=True)
    return "ps lists them as silent within seconds; pause refuses, unless --user names that user"


@case(
    SHOWN,
    "a forged plan in the folder, and ps",
    before="ps did not read plans; a stranger's must not be offered for a resume",
)
def no_forged_plan_is_offered(stage: Stage) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    fill(settings, topic, [(b"k", b"{}", 0)] * 20)
    (stage.folder / "fails.py").write_text("def handle(sub):\n    raise ValueError\n")
    what = ["--topic", topic, "--group", topic, "--from", "earliest", "-b", stage.bootstrap]
    halted = stage.drainer("run", *what, "--handler", "fails.py", "--yes")
    insist(halted.returncode == 5, halted.stderr)
    [plan] = stage.folder.glob("*.plan.json")
    resume = f"resume: drainer resume {plan.name}"
    shown = stage.drainer("ps")
    insist(resume in shown.stdout + shown.stderr, shown.stderr)
    os.mkfifo(stage.folder / "fifo.plan.json")
    plan.chmod(0o666)
    shown = stage.drainer("ps", timeout_s=60)
    insist(resume not in shown.stdout + shown.stderr, "it is offered though anybody can write it")
    return "only plans that nobody else could have written"
