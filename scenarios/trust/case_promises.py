"""Cases of the promises of docs/explanation/trust.md about other users, letters and receipts."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

from drainer.letters.receipts import Receipt
from drainer.model.codec import encode
from drainer.model.formats import RECEIPT
from scenarios.trust.case import Broken, Running, Stage, case, ensure
from scenarios.trust.case_letters import dead_letters, forge, handled, listed, produce, redrive
from scenarios.trust.case_plantrust import change_plan, untouched_address

UNPRIVILEGED = 65534
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
    "a profile that others can write",
    before="never broken; it could name brokers, a handler and commands",
)
def profile_of_others(stage: Stage) -> str:
    profile = stage.folder / "night.toml"
    profile.write_text(f'bootstrap-server = "{stage.bootstrap}"\n', encoding="utf-8")
    words = ("--profile", str(profile), "inspect", "--topic", stage.topic(20), "--group", "g")
    for mode, code in ((0o666, 3), (0o600, 0)):
        profile.chmod(mode)
        ended = stage.drainer(*words, code=None)
        ensure(ended.code == code, f"mode {mode:o}: {ended.code}: {ended.err}")
    return "refused with exit 3"


@contextmanager
def slow_drain(stage: Stage, topic: str, *more: str) -> Iterator[tuple[Running, Path]]:
    """Provide a drain that runs, and its socket."""
    runtime = Path(tempfile.mkdtemp(prefix="run-"))  # The path of a socket has to be short.
    more = ("-c", "1", "--plan", "p.json", "--tune", "log-format=json", *more)
    words = stage.run_words(topic, stage.file("slow.py", SLOW), *more)
    try:
        with stage.running(*words, env={"XDG_RUNTIME_DIR": str(runtime)}) as running:
            running.prints('"event": ?"progress"')
            yield running, next((runtime / "drainer").glob("*.sock"))
    finally:
        shutil.rmtree(runtime)


@case(
    "another user requests that a running drain stops, and looks into its files",
    before="never broken; the folder, the kernel's word on the uid, and modes stand before it",
)
def another_user_steers(stage: Stage) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can become another user"
    with slow_drain(stage, stage.topic(200)) as (drain, path):
        files = [path.parent, path, *stage.folder.glob("p.json*")]
        open_to_others = [each.name for each in files if each.stat().st_mode & 0o077]
        ensure(not open_to_others, f"others may use {open_to_others}")
        ensure(len(files) > 3, f"no plan and journal among {files}")
        for opened in (path, path.parent, path.parent.parent):
            # So the kernel's word on the uid is the only protection that is left.
            opened.chmod(0o777)
        with chdir(path.parent):  # The folders above may be closed to others.
            ensure(not _answer(path.name, UNPRIVILEGED), "it answered another user")
            ensure(drain.process.poll() is None, "another user ended it")
            ensure(_answer(path.name, 0), "it answers no user")
        drain.ends(4)
    return "no answer, and the drain continues; files have mode 0600, their folder 0700"


def _answer(path: str, uid: int) -> bytes:
    """Return the answer to a user who requests a stop."""
    os.seteuid(uid)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(path)
            with suppress(BrokenPipeError):
                client.sendall(b"POST /stop HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                return client.recv(1 << 16)
            return b""
    finally:
        os.seteuid(0)


@case(
    "the metrics port at another address than 127.0.0.1",
    before="never broken",
)
def this_machine_alone(stage: Stage) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with slow_drain(stage, stage.topic(200), "--metrics", str(port)):
        socket.create_connection(("127.0.0.1", port), 10).close()
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 10)
            raise Broken("it listens at every address of this machine")
    return "refused at 127.0.0.2, answers at 127.0.0.1"


@case(
    "a plan's journal, and client properties that a plan names, that others can write",
    before="never broken",
    quick=True,
)
def files_of_a_plan(stage: Stage) -> str:
    topic = stage.topic(200)
    with slow_drain(stage, topic) as (drain, _):
        drain.kill()
    journal = next(stage.folder.glob("p.json.journal*"))
    journal.chmod(0o666)
    ended = stage.drainer(*stage.resume_words("p.json", "-b", stage.bootstrap), code=3)
    ensure(journal.name in ended.err, ended.err)
    journal.chmod(0o600)
    config = stage.folder / "client.properties"
    config.write_text(f"bootstrap.servers={stage.bootstrap}\n", encoding="utf-8")
    config.chmod(0o666)
    change_plan(stage.folder / "p.json", client_config=str(config))
    for words in (stage.resume_words("p.json"), ["plan", "verify", "p.json"]):
        ended = stage.drainer(*words, code=3)
        ensure(f"{config} is writable by everyone" in ended.err, ended.err)
    return "refused with exit 3, whoever names the client properties"


@case(
    "a plan names its own brokers, and a login is given",
    before="plan verify sent the login there",
    quick=True,
)
def login_of_a_person(stage: Stage) -> str:
    topic = stage.topic(20)
    stage.drain(topic, "count", "--plan", "p.json")
    with untouched_address() as brokers:
        change_plan(stage.folder / "p.json", bootstrap_servers=brokers)
        for command in ("verify", "undo"):
            ended = stage.drainer("plan", command, "p.json", *LOGIN, code=3)
            ensure(brokers in ended.err and "--yes" in ended.err, ended.err)
        login = "".join(f"{word}\n" for word in LOGIN[1::2])
        config = stage.folder / stage.file("client.properties", login)
        change_plan(stage.folder / "p.json", client_config=str(config))
        ended = stage.drainer("plan", "verify", "p.json", code=3)
        ensure(brokers in ended.err and str(config) in ended.err, ended.err)
    return (
        "plan verify and plan undo name the brokers, and request a confirmation before they connect"
    )


@case(
    "brokers that refuse a login",
    before="never broken; errors of the client could hold the password",
)
def refused_login(stage: Stage) -> str:
    words = ("inspect", "--topic", "t", "--group", "g", "-b", stage.bootstrap, *LOGIN)
    ended = stage.drainer("--debug", *words, code=3)
    ensure(PASSWORD not in ended.out + ended.err, "the password is shown")
    return "exit 3, without the password"


@case(
    "letters whose payload or sub-key is code",
    before="never broken; letters are JSON and literals",
)
def letters_of_code(stage: Stage) -> str:
    dead, ran = dead_letters(stage, "indexer"), stage.folder / "ran"
    code = f"__import__('pathlib').Path({str(ran)!r}).touch()"
    made_up = (
        ({"payload_encoding": "pickle"}, pickle.dumps(_Runs(code))),
        ({"payload_encoding": "literal"}, code.encode()),
        ({"sub_key": code, "sub_key_exact": True}, b"{}"),
    )
    for changes, value in made_up:
        forge(stage, dead, changes, value=value)
    listed(stage, dead)
    for offset in range(1, 1 + len(made_up)):
        where = ("--dead-letter-topic", dead, "-b", stage.bootstrap)
        stage.drainer("dead", "show", f"0:{offset}", *where, code=None)
    (stage.folder / "fixed").touch()
    ended = redrive(stage, dead, code=None)
    ensure(not ran.exists(), "a letter's code ran")
    ensure(ended.code in (0, 6), ended.text)
    return "never run: list, show and redrive go past them"


class _Runs:
    """An object whose code runs when it is unpickled."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (self._code,)


@case(
    "receipts of redrives that never were",
    before="never broken; who may write to the topic can hide letters from its group alone",
)
def forged_receipts(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    (stage.folder / "fixed").touch()
    with stage.cluster() as cluster:
        topic_id = cluster.topic(dead).topic_id
    group = f"drainer.redrive.{dead}"
    for of_group, of_topic in (("another", topic_id), (group, "another")):
        _write_receipt(stage, dead, of_group, of_topic)
    ensure(listed(stage, dead)["letters"] == 1, "receipts of others hide a letter")
    _write_receipt(stage, dead, group, topic_id)
    redrive(stage, dead)
    ensure(not handled(stage), "receipts of its own group do not count")
    redrive(stage, dead, "--group", "another-group")
    ensure(len(handled(stage)) == 1, f"handled {handled(stage)}")
    return "those of another group or topic count for nothing; another --group finds all letters"


def _write_receipt(stage: Stage, dead: str, group: str, topic_id: str) -> None:
    receipt = Receipt(group, topic_id, "forged", "host", "p.json", 1, True, ((0, 1),))
    produce(stage, dead, (b"", [(str(RECEIPT), encode(receipt.as_json()))]))
