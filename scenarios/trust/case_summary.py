"""Streams that fail, nohup, forged lines, and ends that no resume gets over."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from drainer.demo.fill import create_topic, fill
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_topic
from scenarios.trust.case import Stage, case, insist

SLOW = """
import time

def handle(sub):
    time.sleep(0.05)
"""
FORGED = "✓ Redriven 5 letters"
FAILING = f"""
from drainer import SubMessage

def split(message):
    yield SubMessage("key\\n{FORGED}\\u202e\\u200b\\ud800")

def handle(sub):
    raise ValueError("bad\\n{FORGED}\\x1b[2J \\ud800")
"""
WAIT_S = 60.0


def _topic(stage: Stage, messages: int) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    fill(settings, topic, ((None, b"%d" % n, 0) for n in range(messages)))
    return topic


def _run(stage: Stage, topic: str, handler: str, *more: str) -> list[str]:
    what = ["--topic", topic, "--group", f"g-{topic}", "--handler", handler, "-b", stage.bootstrap]
    return ["run", *what, "--from", "earliest", "--yes", *more]


def _handler(stage: Stage, source: str) -> str:
    (stage.folder / "handler.py").write_text(source, encoding="utf-8")
    return "handler.py"


def _begun(stage: Stage, words: Sequence[str], *by: str) -> subprocess.Popen[str]:
    """A drain that has finished something."""
    running = subprocess.Popen(
        [*by, *stage.program, *words],
        cwd=stage.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until_s = time.monotonic() + WAIT_S
    while not list(stage.folder.glob("*.plan.json.*journal*")) and time.monotonic() < until_s:
        if running.poll() is not None:
            break
        time.sleep(0.05)
    time.sleep(0.5)
    return running


def _ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = running.communicate(timeout=WAIT_S)
    return running.returncode, said


def _told(said: str, word: str) -> list[str]:
    line = next(line for line in said.splitlines() if line.startswith(f"{word}: drainer "))
    return shlex.split(line)[2:]


@case(18, "stdout is full, or its reader is gone", before="drained all, and ended with exit 1")
def output_fails(stage: Stage) -> str:
    codes = []
    for ends in (">/dev/full", ">&- 2>&-", ">/dev/full 2>&1"):
        words = _run(stage, _topic(stage, 50), "count", "-o", "json")
        script = f'"$@" {ends}'
        done = subprocess.run(
            ["bash", "-c", script, "sh", *stage.program, *words],
            cwd=stage.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=WAIT_S,
            check=False,
        )
        codes.append(done.returncode)
    insist(codes == [0, 0, 0], f"exit codes {codes}")
    return "exit 0, and all is drained"


@case(
    18,
    "half a surrogate pair in a key and in an error",
    before="TypeError, exit 1; neither account nor report",
)
def surrogates(stage: Stage) -> str:
    fatal = FAILING.replace("ValueError(", "__import__('drainer').Fatal(")
    words = _run(
        stage, _topic(stage, 3), _handler(stage, fatal), "-o", "json", "--report", "r.html"
    )
    done = stage.drainer(*words)
    insist(done.returncode == 5, f"exit {done.returncode}: {done.stderr[-400:]}")
    insist(json.loads(done.stdout)["exit_code"] == 5, done.stdout)
    insist("Halted" in (stage.folder / "r.html").read_text(encoding="utf-8"), "no report")
    return "exit 5, with account and report"


@case(17, "nohup, and the ssh session is lost", before="took SIGHUP, and stopped with exit 4")
def nohup(stage: Stage) -> str:
    topic = _topic(stage, 400)
    running = _begun(stage, _run(stage, topic, _handler(stage, SLOW), "-c", "8"), "nohup")
    running.send_signal(signal.SIGHUP)
    code, said = _ended(running)
    insist(code == 0, f"exit {code}: {said[-400:]}")
    return "goes on, and ends with exit 0"


@case(22, "a line break in a key and in an error", before="forged a line '✓ Redriven 5 letters'")
def forged_lines(stage: Stage) -> str:
    policy = ("--retries", "0", "--on-failure", "dead-letter")
    words = _run(stage, _topic(stage, 1), _handler(stage, FAILING), *policy)
    topic = words[words.index("--topic") + 1]
    drained = stage.drainer(*words)
    insist(drained.returncode == 6, f"exit {drained.returncode}: {drained.stderr[-400:]}")
    letters = next(
        line.split()[-1]
        for line in drained.stdout.splitlines()
        if line.strip().startswith("dead letters ")
    )
    shown = stage.drainer(
        "dead", "show", "0:0", "--dead-letter-topic", letters, "-b", stage.bootstrap
    )
    insist(shown.returncode == 0, shown.stderr[-400:])
    for line in "".join(e.stdout + e.stderr for e in (drained, shown)).splitlines():
        insist(not line.strip().startswith(FORGED), line)
        insist(line.isprintable(), repr(line))
    insist(FORGED in shown.stdout, f"nothing of it is shown, of {topic}")
    return r"one line, with \n and \u202e spelled out"


@case(
    13,
    "resume as the printed line says, --set and all",
    before="the line was `drainer resume PLAN`: --set and -c were lost",
)
def resume_line(stage: Stage) -> str:
    (stage.folder / "handler.py").write_text(
        "import pathlib, time\n"
        "def open(context):\n"
        "    global out\n"
        "    assert context.options['token'] == 'hush'\n"
        "    out = pathlib.Path(context.options['out']).open('a')\n"
        "def handle(sub):\n"
        "    time.sleep(0.05)\n"
        "    out.write('done\\n')\n"
        "def close():\n"
        "    out.close()\n"
    )
    topic = _topic(stage, 400)
    given = ("--set", "out=my file", "--set", "token=hush", "-c", "8")
    running = _begun(stage, _run(stage, topic, "handler.py", *given))
    running.send_signal(signal.SIGINT)
    code, said = _ended(running)
    insist(code == 4, f"exit {code}: {said[-400:]}")
    insist("error:" not in said, "a stop that was asked for is called an error")
    insist("hush" not in said, "a secret is shown")
    insist("--set token=…" in said, said[-400:])
    resumed = stage.drainer(*_told(said, "resume"), "--set", "token=hush", "--yes")
    insist(resumed.returncode == 0, resumed.stderr[-400:])
    lines = len((stage.folder / "my file").read_text().splitlines())
    insist(lines == 400, f"{lines} of 400 handled")
    return "it has --set and -c, names the secret one, and goes on to the end"


@case(
    13,
    "somebody moves the group amid a drain",
    before="exit 4 and `resume: …`, which is refused; 'put the group back' with no command for it",
)
def group_moved(stage: Stage) -> str:
    topic = _topic(stage, 600)
    running = _begun(stage, _run(stage, topic, _handler(stage, SLOW), "-c", "8"))
    with Cluster.connect(ClientSettings.load(stage.bootstrap), 30) as cluster:
        cluster.alter_committed(f"g-{topic}", topic, {0: 599})
    code, said = _ended(running)
    insist(code == 8, f"exit {code}: {said[-400:]}")
    insist("resume: " not in said, "it offers a resume that is refused")
    undone = stage.drainer(*_told(said, "undo"), "--yes")
    insist(undone.returncode == 0, undone.stderr[-400:])
    plan = next(stage.folder.glob("*.plan.json"))
    resumed = stage.drainer("resume", plan.name, "-c", "600", "--yes")
    insist(resumed.returncode == 0, resumed.stderr[-400:])
    return "exit 8 and `undo: drainer plan undo …`, after which it can be resumed"


@case(13, "the topic is deleted amid a drain", before="exit 4 and `resume: …`, which is refused")
def topic_gone(stage: Stage) -> str:
    topic = _topic(stage, 600)
    running = _begun(stage, _run(stage, topic, _handler(stage, SLOW), "-c", "8"))
    delete_topic(ClientSettings.load(stage.bootstrap), topic)
    code, said = _ended(running)
    insist(code == 8, f"exit {code}: {said[-400:]}")
    insist("resume: " not in said, "it offers a resume that is refused")
    return "exit 8, and no resume"


@case(
    7,
    "time left, with one hot lane and no deadline",
    before="the work divided by all workers, the lane left out",
)
def time_left(stage: Stage) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    # Most of the messages come quickly, and then a lane of 400 goes one by one: 20 s.
    fill(settings, topic, ((b"hot" if n % 2 else b"%d" % n, b"x", 0) for n in range(800)))
    words = _run(stage, topic, _handler(stage, SLOW), "-c", "50", "--log-format", "json")
    running = subprocess.Popen(
        [*stage.program, *words],
        cwd=Path(stage.folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    try:
        for line in running.stderr:
            told = json.loads(line)
            if told.get("event") == "progress" and told["hottest"] and told["eta_s"] is not None:
                waiting = told["hottest"][0][1]
                rate, busy = told["rate_now"], told["running"]
                least_s = waiting * busy / rate if rate > 0 else 0.0  # Little's law
                insist(told["eta_s"] >= least_s - 0.2, f"{told['eta_s']} s, {least_s} s at least")
                return f"{told['eta_s']:.0f} s left: {waiting} of the hottest lane, one by one"
    finally:
        running.kill()
        running.communicate()
    insist(False, "no progress was told")
    return ""
