"""Streams that fail, nohup, forged lines, and ends that no resume gets over."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

from scenarios.brokers import delete_topic
from scenarios.trust.case import Running, Stage, case, ensure

SLOW = """
import time

def handle(sub):
    time.sleep(0.05)
"""
WRITES = """
import pathlib, time

def open(context):
    global out
    assert context.options['token'] == 'hush'
    out = pathlib.Path(context.options['out']).open('a')

def handle(sub):
    time.sleep(0.05)
    out.write('done\\n')

def close():
    out.close()
"""
FORGED = "✓ Redriven 5 letters"
FAILING = f"""
from drainer import SubMessage

def split(message):
    yield SubMessage("key\\n{FORGED}\\u202e\\u200b\\ud800")

def handle(sub):
    raise ValueError("bad\\n{FORGED}\\x1b[2J \\ud800")
"""


def begun(stage: Stage, topic: str, source: str, *more: str, by: tuple[str, ...] = ()) -> Running:
    """A drain that has finished something."""
    words = stage.run_words(topic, stage.file("handler.py", source), "-c", "8", *more)
    running = stage.start(*words, by=by)
    running.until(lambda: any(stage.folder.glob("*.plan.json.*journal*")), "a journal")
    return running


@case(18, "stdout is full, or its reader is gone", before="drained all, and ended with exit 1")
def output_fails(stage: Stage) -> str:
    for ends in (">/dev/full", ">&- 2>&-", ">/dev/full 2>&1"):
        words = stage.run_words(stage.topic(50), "count", "-o", "json")
        stage.start(*words, by=("bash", "-c", f'"$@" {ends}', "sh")).ends(0)
    return "exit 0, and all is drained"


@case(
    18,
    "half a surrogate pair in a key and in an error",
    before="TypeError, exit 1; neither account nor report",
)
def surrogates(stage: Stage) -> str:
    fatal = FAILING.replace("ValueError(", "__import__('drainer').Fatal(")
    handler = stage.file("handler.py", fatal)
    done = stage.drain(stage.topic(3), handler, "-o", "json", "--report", "r.html", code=5)
    ensure(done.answer["exit_code"] == 5, done.out)
    ensure("Halted" in (stage.folder / "r.html").read_text(encoding="utf-8"), "no report")
    return "exit 5, with account and report"


@case(17, "nohup, and the ssh session is lost", before="took SIGHUP, and stopped with exit 4")
def nohup(stage: Stage) -> str:
    running = begun(stage, stage.topic(400), SLOW, by=("nohup",))
    running.process.send_signal(signal.SIGHUP)
    running.ends(0)
    return "continues, and ends with exit 0"


@case(22, "a line break in a key and in an error", before="forged a line '✓ Redriven 5 letters'")
def forged_lines(stage: Stage) -> str:
    policy = ("--retries", "0", "--on-failure", "dead-letter")
    handler, topic = stage.file("handler.py", FAILING), stage.topic(1)
    drained = stage.drain(topic, handler, *policy, "-o", "json", code=6)
    dead = ("--dead-letter-topic", drained.answer["dead_letter_topic"], "-b", stage.bootstrap)
    shown = stage.drainer("dead", "show", "0:0", *dead)
    for line in "".join(e.out + e.err for e in (drained, shown)).splitlines():
        ensure(not line.strip().startswith(FORGED), line)
        ensure(line.isprintable(), repr(line))
    ensure(FORGED in shown.out, f"nothing of it is shown, of {topic}")
    return r"one line, with \n and \u202e spelled out"


@case(
    13,
    "resume as the printed line says, --set and all",
    before="the line was `drainer resume PLAN`: --set and -c were lost",
)
def resume_line(stage: Stage) -> str:
    given = ("--set", "out=my file", "--set", "token=hush")
    running = begun(stage, stage.topic(400), WRITES, *given)
    running.process.send_signal(signal.SIGINT)
    ended = running.ends(4)
    ensure("error:" not in ended.text, "a stop that was requested is called an error")
    ensure("hush" not in ended.text, "a secret is shown")
    ensure("--set token=…" in ended.text, ended.text[-400:])
    stage.drainer(*ended.way_out("resume"), "--set", "token=hush", "--yes")
    lines = len((stage.folder / "my file").read_text().splitlines())
    ensure(lines == 400, f"{lines} of 400 handled")
    return "it has --set and -c, names the secret one, and goes on to the end"


@case(
    13,
    "somebody moves the group amid a drain",
    before="exit 4 and `resume: …`, which is refused; 'put the group back' with no command for it",
)
def group_moved(stage: Stage) -> str:
    topic = stage.topic(600)
    running = begun(stage, topic, SLOW)
    with stage.cluster() as cluster:
        cluster.alter_committed(topic, topic, {0: 599})
    ended = running.ends(8)
    ensure("resume: " not in ended.text, "it offers a resume that is refused")
    stage.drainer(*ended.way_out("undo"), "--yes")
    plan = next(stage.folder.glob("*.plan.json"))
    stage.drainer("resume", plan.name, "-c", "600", "--yes")
    return "exit 8 and `undo: drainer plan undo …`, after which it can be resumed"


@case(13, "the topic is deleted amid a drain", before="exit 4 and `resume: …`, which is refused")
def topic_gone(stage: Stage) -> str:
    topic = stage.topic(600)
    running = begun(stage, topic, SLOW)
    delete_topic(stage.settings, topic)
    ensure("resume: " not in running.ends(8).text, "it offers a resume that is refused")
    return "exit 8, and no resume"


@case(
    7,
    "time left, with one hot lane and no deadline",
    before="the work divided by all workers, the lane left out",
)
def time_left(stage: Stage) -> str:
    # Most of the messages come quickly, and then a lane of 400 goes one by one: 20 s.
    topic = stage.topic((b"hot" if n % 2 else b"%d" % n, b"x") for n in range(800))
    words = stage.run_words(topic, stage.file("handler.py", SLOW), "-c", "50")
    running = stage.start(*words, "--log-format", "json")

    def progress() -> Iterator[dict[str, Any]]:
        lines = running.err.rpartition("\n")[0].splitlines()
        events = (json.loads(line) for line in lines)
        return (e for e in events if e["event"] == "progress" and e["hottest"])

    running.until(lambda: any(e["eta_s"] is not None for e in progress()), "a time left")
    found = next(e for e in progress() if e["eta_s"] is not None)
    waiting, rate = found["hottest"][0][1], found["rate_now"]
    least_s = waiting * found["running"] / rate if rate > 0 else 0.0  # Little's law
    ensure(found["eta_s"] >= least_s - 0.2, f"{found['eta_s']} s, {least_s} s at least")
    return f"{found['eta_s']:.0f} s left: {waiting} of the hottest lane, one by one"
