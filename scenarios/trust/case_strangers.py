"""Cases of files that strangers send or leave: plans, states, client properties, sandboxes."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path

import orjson

from drainer.core.merge import Record
from drainer.host.process import ProcessMark
from drainer.model.account import StateReference
from drainer.model.progress import Counts, Progress
from drainer.spark.state.lease import LOCAL
from drainer.spark.state.state import Attempt, State
from drainer.store.plan_file import PlanFile
from scenarios.trust.case import Broken, Stage, case, ensure
from scenarios.trust.case_plantrust import change_plan, evil_library, untouched_address

UNPRIVILEGED = 65534
KEYS = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "hush"}
HALTS = """
import drainer
import helpers

def handle(sub):
    if sub.message.offset >= helpers.LIMIT:
        raise drainer.Fatal("enough")
"""


def halted(stage: Stage) -> Path:
    """Make the plan of a drain that is done with ten of twenty messages."""
    stage.file("helpers.py", "LIMIT = 10\n")
    plan = stage.folder / "p.json"
    handler = stage.file("halts.py", HALTS)
    stage.drain(stage.topic(20), handler, "-c", "1", "--plan", str(plan), code=5)
    return plan


def give_away(*paths: Path) -> None:
    """Give files to another user. Raises Broken without root, who alone can do that."""
    if os.geteuid() != 0:
        raise Broken("run this as root: no other user can give files away")
    for path in paths:
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED)


@case(
    "plugin.library.paths with a NUL behind it, in a file that only a plan names",
    before="librdkafka loaded the library: its code ran",
)
def no_hidden_plugin(stage: Stage) -> str:
    library, ran = evil_library(stage.folder)
    config = stage.folder / "client.properties"
    config.write_text(
        f"bootstrap.servers={stage.bootstrap}\nplugin.library.paths\0={library}\n", encoding="utf-8"
    )
    plan = halted(stage)
    change_plan(plan, client_config=str(config))
    named = ("--client-config", str(config))
    for words in (
        ("plan", "verify", str(plan)),
        ("resume", str(plan), "--yes"),
        ("inspect", "--topic", "t", "--group", "g", *named),
        ("inspect", "--topic", "t", "--group", "g", "-b", stage.bootstrap, "-X", "client.id=a\tb"),
    ):
        ended = stage.drainer(*words, code=None)
        ensure(not ran.exists(), f"{words}: the library's code ran")
        ensure(ended.code == 2 and "control character" in ended.err, ended.err)
    return "refused, with file and line"


@case(
    "a plan whose state is s3://…?endpoint=… of a stranger",
    before="plan show, plan verify and resume sent signed requests there before any question",
)
def plan_by_mail(stage: Stage) -> str:
    plan = halted(stage)
    env = KEYS
    with untouched_address() as evil:
        uri = f"s3://drains/d?region=eu-west-1&endpoint=http://{evil}"
        change_plan(plan, state=StateReference(uri, 1, 1))
        for words in ("plan show", "plan verify", "plan undo", "plan history", "resume"):
            code = 0 if words == "plan history" else 3
            ended = stage.drainer(*words.split(), str(plan), env=env, code=code)
            ensure(words == "plan history" or "s3://drains/d" in ended.err, ended.err)
        with socket.create_server(("127.0.0.1", 0)) as own:
            own.settimeout(60)
            private = f"http://127.0.0.1:{own.getsockname()[1]}"
            stage.drainer(
                "plan",
                "show",
                str(plan),
                "--yes",
                env={**env, "AWS_ENDPOINT_URL": private},
                code=None,
            )
            own.accept()[0].close()
    return "the address needs a confirmation; the endpoint is the environment's, not the plan's"


@case(
    "a state forged in a sticky folder of somebody else",
    before="resume counted its claims as done, and committed past it",
)
def forged_state(stage: Stage) -> str:
    plan, folder = halted(stage), stage.folder / "shared"
    known = PlanFile(plan).load().plan
    state = State.open(str(folder), known.terms.drain_id)
    state.begin_epoch(1, LOCAL)
    attempt = Attempt(1, 1, 0, 0)
    records = state.begin(attempt, {0: 10})
    records.go_on_from(state.await_earlier_attempts(attempt, LOCAL))
    records.append(Record({0: Progress(20, (), {}, Counts(10, 10), Counts(10, 10))}))
    records.end()
    change_plan(plan, state=StateReference(state.uri, 1, 1))
    folder.chmod(0o1777)
    below = list(folder.rglob("*"))
    for theirs in ([folder, *below], below, below[-1:]):
        for path in (folder, *below):
            os.chown(path, os.geteuid(), os.getegid())
        give_away(*theirs)
        for words in (["plan", "show", str(plan)], stage.resume_words(plan)):
            ended = stage.drainer(*words, code=3)
            ensure("belongs to" in ended.err, ended.err)
    return "refused: the folder, or what is in it, belongs to somebody else"


@case("a FIFO as the plan", before="every command waited for ever")
def no_fifo(stage: Stage) -> str:
    plan = stage.folder / "p.json"
    os.mkfifo(plan)
    for words in ("plan show", "plan verify", "plan history", "resume"):
        ended = stage.drainer(*words.split(), str(plan), within_s=60, code=None)
        ensure("not a regular file" in ended.out + ended.err, ended.err)
    return "refused at once"


@case("a module beside the handler changes between run and resume", before="resume did not notice")
def neighbours_are_code(stage: Stage) -> str:
    plan = halted(stage)
    resume = stage.resume_words(plan)
    ended = stage.drainer(*resume, code=None)
    ensure("has changed" not in ended.err, ended.err)
    stage.file("helpers.py", "LIMIT = 15\n")
    for code, changed in ((5, True), (5, False)):
        ended = stage.drainer(*resume, code=code)
        ensure(("has changed since the last run" in ended.err) is changed, ended.err)
    return "warns once that the handler's code has changed"


@case(
    "sandbox down in a folder that somebody prepared",
    before="it ended the process that the file names, and removed the folder",
)
def sandbox_of_another(stage: Stage) -> str:
    folder = stage.folder / "sandbox"
    folder.mkdir()
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        mark = ProcessMark.of(bystander.pid)
        ensure(mark is not None, "there is no process to name")
        assert mark is not None
        ports = {"client": 20001, "controller": 20002}
        state = {"format": "drainer-sandbox/3", "ports": ports, "process": asdict(mark)}
        (folder / "sandbox.json").write_bytes(orjson.dumps(state))
        for mode in (0o644, 0o666):
            (folder / "sandbox.json").chmod(mode)
            stage.drainer("sandbox", "down", "--folder", str(folder), code=3)
            ensure(mark.alive() and folder.exists(), "it ended the process, or removed the folder")
    finally:
        bystander.kill()
        bystander.wait()
    return "refused: the file may be any user's, and the process is not a broker of this folder"
