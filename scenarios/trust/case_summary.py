"""Cases of streams that fail, of nohup, of forged lines, and of ends from which no resume
continues."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import KafkaException, ShareConsumer

from scenarios.trust.case import Stage, case, ensure, wait_until

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
    stage.drainer(*stage.resume_words(plan.name, "-c", "600"))
    return "exit 8 and `undo: drainer plan undo …`, after which it can be resumed"


@case(
    "a share group with a member, of the group's name and then of its lock's",
    before="'does not exist yet: no consumer competes', and all messages handled beside it",
)
def group_of_another_kind(stage: Stage) -> str:
    refusals = []
    for prefix, text in (("", "is a streams or share group"), ("drainer.lock.", "of another kind")):
        topic = stage.topic(20)
        consumer = ShareConsumer(
            {"bootstrap.servers": stage.bootstrap, "group.id": prefix + topic, "log_level": 0}
        )
        consumer.subscribe([topic])

        def listed(group: str = prefix + topic, consumer: ShareConsumer = consumer) -> bool:
            consumer.poll(0.1)
            with stage.cluster() as cluster, suppress(KafkaException):  # they may load
                return bool(cluster.admin.list_groups(group, 10))
            return False

        wait_until(listed, "the consumer is in its group")
        handler = stage.file("handler.py", "def handle(sub): print('handled')")
        ended = stage.drain(topic, handler, code=3)
        consumer.close()
        ensure(text in ended.text, ended.text)
        ensure("handled" not in ended.out, "messages were handled")
        refusals.append(text)
    return f"exit 3, nothing is handled: {', '.join(refusals)}"
