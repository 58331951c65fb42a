"""Streams that fail, nohup, forged lines, and ends that no resume gets over."""

from __future__ import annotations

from scenarios.trust.case import Stage, case, ensure

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


@case(
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


@case(
    "a line break in a key and in an error",
    before="forged a line '✓ Redriven 5 letters'",
    quick=True,
)
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
    "somebody moves the group amid a drain",
    before="exit 4 and `resume: …`, which is refused; 'put the group back' with no command for it",
)
def group_moved(stage: Stage) -> str:
    topic = stage.topic(600)
    words = stage.run_words(topic, stage.file("handler.py", SLOW), "-c", "8")
    running = stage.start(*words)
    running.until(lambda: any(stage.folder.glob("*.plan.json.*journal*")), "a journal")
    with stage.cluster() as cluster:
        cluster.alter_committed(topic, topic, {0: 599})
    ended = running.ends(8)
    ensure("resume: " not in ended.text, "it offers a resume that is refused")
    stage.drainer(*ended.way_out("undo"), "--yes")
    plan = next(stage.folder.glob("*.plan.json"))
    stage.drainer("resume", plan.name, "-c", "600", "--yes")
    return "exit 8 and `undo: drainer plan undo …`, after which it can be resumed"
