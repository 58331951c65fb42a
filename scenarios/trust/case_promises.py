"""What other users, letters and receipts can't do, as docs/explanation/trust.md promises."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from drainer.control.wire import Question
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from drainer.letters.receipts import Receipt
from drainer.model.codec import encode
from drainer.policy.dead_letter import RECEIPT
from drainer.store.plan_file import PlanFile
from scenarios.trust.case import TRY_S, NotHeld, Stage, case, insist
from scenarios.trust.case_letters import dead_letters, handled, listed, produce, redrive
from scenarios.trust.case_plantrust import a_topic, drain_all

SHOWN = 24  # what the page on trust promises
NOBODY = 65534
SLOW = """
import asyncio

async def handle(sub):
    await asyncio.sleep(0.2)
"""
PASSWORD = "hush"
LOGIN = (
    *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"),
    *("-X", "sasl.username=u", "-X", f"sasl.password={PASSWORD}"),
)


@case(
    SHOWN,
    "a profile that others can write",
    before="never broken; it could name brokers, a handler and commands",
)
def profile_of_others(stage: Stage) -> str:
    profile = stage.folder / "night.toml"
    profile.write_text(f'bootstrap-server = "{stage.bootstrap}"\n', encoding="utf-8")
    words = ("--profile", str(profile), "inspect", "--topic", a_topic(stage), "--group", "g")
    for mode, code in ((0o666, 3), (0o600, 0)):
        profile.chmod(mode)
        ended = stage.drainer(*words)
        insist(ended.returncode == code, f"mode {mode:o}: {ended.returncode}: {ended.stderr}")
    return "refused with exit 3"


@contextmanager
def slow_drain(
    stage: Stage, topic: str, *more: str
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A drain that runs, and its socket."""
    (stage.folder / "slow.py").write_text(SLOW, encoding="utf-8")
    runtime = Path(tempfile.mkdtemp(prefix="run-"))  # the path of a socket has to be short
    words = drain_all(stage, topic, topic, "--handler", "slow.py", "-c", "1", "--plan", "p.json")
    process = subprocess.Popen(
        [*stage.program, *words, "--log-format", "json", *more],
        cwd=stage.folder,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if json.loads(line).get("event") == "progress":
                break
        yield process, next((runtime / "drainer").glob("*.sock"))
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(runtime)


@case(
    SHOWN,
    "another user asks a running drain to stop, and looks into its files",
    before="never broken; the folder, the kernel's word on the uid, and modes stand before it",
)
def another_user_steers(stage: Stage) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can become another user"
    with slow_drain(stage, a_topic(stage, messages=200)) as (drain, path):
        files = [path.parent, path, *stage.folder.glob("p.json*")]
        open_to_others = [each.name for each in files if each.stat().st_mode & 0o077]
        insist(not open_to_others, f"others may use {open_to_others}")
        insist(len(files) > 3, f"no plan and journal among {files}")
        for opened in (path, path.parent, path.parent.parent):
            opened.chmod(0o777)  # so that the kernel's word on the uid is all that is left
        with chdir(path.parent):  # what lies above may be closed to others
            insist(not _answer(path.name, NOBODY), "it answered another user")
            insist(drain.poll() is None, "another user ended it")
            insist(_answer(path.name, 0), "it answers nobody")
        insist(drain.wait(TRY_S) == 4, f"its own user did not stop it: {drain.returncode}")
    return "no answer, and the drain continues; files have mode 0600, their folder 0700"


def _answer(path: str, uid: int) -> bytes:
    """What a user who asks for a stop gets."""
    os.seteuid(uid)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(path)
            with suppress(BrokenPipeError):
                client.sendall(encode(Question("stop")) + b"\n")
            with suppress(ConnectionResetError):
                return client.recv(1 << 16)
            return b""
    finally:
        os.seteuid(0)


@case(
    SHOWN,
    "the metrics port at another address than 127.0.0.1",
    before="never broken",
)
def this_machine_alone(stage: Stage) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with slow_drain(stage, a_topic(stage, messages=200), "--metrics", str(port)):
        socket.create_connection(("127.0.0.1", port), 10).close()
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 10)
            raise NotHeld("it listens at every address of this machine")
    return "refused at 127.0.0.2, answers at 127.0.0.1"


@case(
    SHOWN,
    "a plan's journal, and client properties that a plan names, that others can write",
    before="never broken",
)
def files_of_a_plan(stage: Stage) -> str:
    topic = a_topic(stage, messages=200)
    with slow_drain(stage, topic) as (drain, _):
        drain.send_signal(signal.SIGKILL)
        drain.wait(TRY_S)
    journal = next(stage.folder.glob("p.json.journal*"))
    journal.chmod(0o666)
    ended = stage.drainer("resume", "p.json", "--yes", "-b", stage.bootstrap)
    insist(ended.returncode == 3 and journal.name in ended.stderr, ended.stderr)
    journal.chmod(0o600)
    config = stage.folder / "client.properties"
    config.write_text(f"bootstrap.servers={stage.bootstrap}\n", encoding="utf-8")
    config.chmod(0o666)
    file = PlanFile(stage.folder / "p.json")
    file.write(replace(file.load().plan, client_config=str(config)))
    ended = stage.drainer("resume", "p.json", "--yes")
    insist(ended.returncode == 3 and config.name in ended.stderr, ended.stderr)
    return "resume refuses both with exit 3"


@case(
    SHOWN,
    "a plan names its own brokers, and a login is given",
    before="plan verify sent the login there",
)
def login_of_a_person(stage: Stage) -> str:
    topic = a_topic(stage)
    ended = stage.drainer(*drain_all(stage, topic, topic, "--handler", "count", "--plan", "p.json"))
    insist(ended.returncode == 0, ended.stderr)
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.setblocking(False)
        file = PlanFile(stage.folder / "p.json")
        brokers = f"127.0.0.1:{evil.getsockname()[1]}"
        file.write(replace(file.load().plan, bootstrap_servers=brokers))
        for command in ("verify", "undo"):
            ended = stage.drainer("plan", command, "p.json", *LOGIN)
            insist(ended.returncode == 3 and brokers in ended.stderr, ended.stderr)
        with suppress(BlockingIOError):
            evil.accept()
            raise NotHeld(f"it connected to {brokers}, as the plan says")
    return "plan verify and plan undo name the brokers, and ask before they connect"


@case(
    SHOWN,
    "brokers that refuse a login",
    before="never broken; errors of the client could hold the password",
)
def refused_login(stage: Stage) -> str:
    words = ("inspect", "--topic", "t", "--group", "g", "-b", stage.bootstrap, *LOGIN)
    ended = stage.drainer(*words, "--debug")
    insist(ended.returncode == 3, f"exit {ended.returncode}: {ended.stderr}")
    insist(PASSWORD not in ended.stdout + ended.stderr, "the password is shown")
    return "exit 3, without the password"


@case(
    SHOWN,
    "letters whose payload or sub-key is code",
    before="never broken; letters are JSON and literals",
)
def letters_of_code(stage: Stage) -> str:
    dead, ran = dead_letters(stage, "indexer"), stage.folder / "ran"
    with Cluster.connect(ClientSettings.load(stage.bootstrap)) as cluster:
        (letter,) = read_letters(cluster, dead)
    (name, provenance), *headers = letter.headers
    told = json.loads(provenance or b"")
    code = f"__import__('pathlib').Path({str(ran)!r}).touch()"
    made_up = (
        ({"payload_encoding": "pickle"}, pickle.dumps(_Runs(code))),
        ({"payload_encoding": "literal"}, code.encode()),
        ({"sub_key": code, "sub_key_exact": True}, b"{}"),
    )
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    for changes, value in made_up:
        header = (name, json.dumps(told | changes).encode())
        producer.produce(dead, value, b"bad", headers=[header, *headers])
    producer.flush(30)
    listed(stage, dead)
    for offset in range(1, 1 + len(made_up)):
        where = ("--dead-letter-topic", dead, "-b", stage.bootstrap)
        stage.drainer("dead", "show", f"0:{offset}", *where)
    (stage.folder / "mended").touch()
    code_, err = redrive(stage, dead)
    insist(not ran.exists(), "a letter's code ran")
    insist(code_ in (0, 6), f"the redrive ended with {code_}: {err}")
    return "never run: list, show and redrive go past them"


class _Runs:
    """Whatever unpickles it runs its code."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (self._code,)


@case(
    SHOWN,
    "receipts of redrives that never were",
    before="never broken; who may write to the topic can hide letters from its group alone",
)
def forged_receipts(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    (stage.folder / "mended").touch()
    with Cluster.connect(ClientSettings.load(stage.bootstrap)) as cluster:
        topic_id = cluster.topic(dead).topic_id
    group = f"drainer.redrive.{dead}"
    for of_group, of_topic in (("another", topic_id), (group, "another")):
        _forge(stage, dead, of_group, of_topic)
    insist(listed(stage, dead)["letters"] == 1, "receipts of others hide a letter")
    _forge(stage, dead, group, topic_id)
    code, err = redrive(stage, dead)
    insist((code, handled(stage)) == (0, []), f"ended with {code}: {err}")
    code, err = redrive(stage, dead, "--group", "another-look")
    insist((code, len(handled(stage))) == (0, 1), f"ended with {code}: {err}")
    return "those of another group or topic count for nothing; another --group finds all letters"


def _forge(stage: Stage, dead: str, group: str, topic_id: str) -> None:
    receipt = Receipt(group, topic_id, "forged", "host", "p.json", 1, True, ((0, 1),))
    produce(stage, dead, (b"", [(RECEIPT, encode(receipt.as_json()))]))
