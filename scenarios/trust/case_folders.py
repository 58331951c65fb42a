"""Cases of plans and handlers where several users can write: /tmp, the folder of a shift, and a
mailbox."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from drainer.model.terms import PayloadSettings
from drainer.store.plan_file import PlanFile
from scenarios.trust.case import Broken, Ended, Running, Stage, case, ensure
from scenarios.trust.case_plantrust import change_plan, trap

ANNA, BEN, MALLORY, ONCALL = 64001, 64002, 64003, 64010  # users and a group without names
MESSAGES = 600
SLOW = """
import asyncio

async def handle(sub):
    await asyncio.sleep(0.05)
"""
TRIES = """
try:
    import faster_json
except ImportError:
    faster_json = None

def handle(sub):
    pass
"""
# Python may be installed where only root can enter. The rule asks for owners, not for rights.
MAY_READ = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


class People:
    """Users of one machine, who run the installed command in one folder."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.folder = folder
        self._stage = replace(stage, folder=folder)

    def write(self, name: str, text: str | bytes, uid: int, mode: int = 0o644) -> Path:
        """Write a file of a user. It has the group of the folder that it lies in."""
        path = self.folder / name
        if not path.parent.exists():
            path.parent.mkdir()
            os.chown(path.parent, uid, uid)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.chown(path, uid, path.parent.stat().st_gid)
        path.chmod(mode)
        return path

    def start(self, uid: int, *words: str, by: tuple[str, ...] = ()) -> Running:
        """Start a command of a user whose umask lets no other user read new files."""
        if uid:
            groups = f"--groups={ONCALL}" if uid in (ANNA, BEN) else "--clear-groups"
            by = (*by, "setpriv", f"--reuid={uid}", f"--regid={uid}", groups, *MAY_READ)
        env = {"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/nonexistent"}
        return self._stage.start(*words, env=env, by=(*by, "sh", "-c", 'umask 077; exec "$0" "$@"'))

    def runs(self, uid: int, *words: str, code: int, by: tuple[str, ...] = ()) -> Ended:
        return self.start(uid, *words, by=by).ends(code)

    def refuses(self, uid: int, why: str, *words: str) -> None:
        """Ensure that a resume is refused, and that the reason is named."""
        ended = self.runs(uid, *words, code=3)
        ensure(why in ended.text, f"{why!r} is not named: {ended.text[-600:]}")


@contextmanager
def people(stage: Stage, mode: int, group: int = 0) -> Iterator[People]:
    """Provide a folder with this mode and group, which users of the machine can reach."""
    if os.geteuid() != 0:
        raise Broken("run this as root: no other user can act for several")
    folder = Path(tempfile.mkdtemp(prefix="trust-"))
    try:
        os.chown(folder, 0, group)
        folder.chmod(mode)
        yield People(stage, folder)
    finally:
        stage.close()
        for each in (folder, *(Path(f"/tmp/drainer-{uid}") for uid in (ANNA, BEN, MALLORY))):
            shutil.rmtree(each, ignore_errors=True)
        for streams in folder.parent.glob(f"{folder.name}-*"):  # of the commands
            streams.unlink()


@case(
    "plans, journals, locks and links that another user leaves in /tmp",
    before="never broken: each plan had to be its user's own, also in the folder of a shift",
)
def plan_in_tmp(stage: Stage) -> str:
    with people(stage, 0o1777) as users:
        handler = str(users.write("slow.py", SLOW, ANNA))
        named = ("--handler", handler, "--yes")
        words = stage.run_words(stage.topic(MESSAGES), handler, "-c", "4", "--plan", "p.json")
        with_journal = users.start(ANNA, *words)
        with_journal.until(lambda: any(users.folder.glob("p.json.journal-*")), "a journal")
        with_journal.kill()
        plan, resume = users.folder / "p.json", ("resume", "p.json", *named)
        theirs = users.write("theirs.json", plan.read_bytes(), MALLORY)
        users.refuses(ANNA, "theirs.json belongs to", "resume", str(theirs), *named)
        (users.folder / "link.json").symlink_to(plan)
        os.lchown(users.folder / "link.json", MALLORY, MALLORY)
        users.refuses(ANNA, "link.json belongs to", "resume", "link.json", *named)
        users.refuses(MALLORY, "p.json", *resume)
        planted = users.write("p.json.journal-99", b"", MALLORY)
        users.refuses(ANNA, "journal-99 belongs to", *resume)
        planted.unlink()
        lock = users.write(".p.json.lock", b"", MALLORY, 0o666)
        users.refuses(ANNA, ".p.json.lock belongs to", *resume)
        lock.unlink()
        plan.chmod(0o666)
        users.refuses(ANNA, "is writable by everyone", *resume)
        plan.chmod(0o600)
        users.runs(ANNA, *resume, code=0)
    return "each is refused by its name; the user's own plan beside them is resumed"


@case(
    "modules, packages and bytecode that another user puts beside a handler in /tmp",
    before="drainer imported what the handler tried to import, and Python's cache of it",
)
def modules_beside_a_handler(stage: Stage) -> str:
    with people(stage, 0o1777) as users:
        handler = users.write("tries.py", TRIES, ANNA)
        ran = users.folder / "ran"
        evil = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n{TRIES}"
        words = (*stage.run_words(stage.topic(20), str(handler)), "--dry-run")
        cached = Path(importlib.util.cache_from_source(str(handler))).relative_to(users.folder)
        status = handler.stat()
        stamp = b"".join(n.to_bytes(4, "little") for n in (0, int(status.st_mtime), status.st_size))
        code = marshal.dumps(compile(evil, str(handler), "exec"))
        users.write(str(cached), importlib.util.MAGIC_NUMBER + stamp + code, MALLORY)
        users.runs(ANNA, *words, code=0)
        ensure(not ran.exists(), "Python's cache of another user ran")
        for name in ("faster_json.py", "faster_json/__init__.py"):
            planted = users.write(name, evil, MALLORY)
            users.refuses(ANNA, "faster_json", *words)
            ensure(not ran.exists(), f"{name} of another user ran")
            planted.unlink()
            shutil.rmtree(users.folder / "faster_json", ignore_errors=True)
    return "the module is refused by its name, and the bytecode is not used"


@case(
    "a drain that goes from hand to hand in the folder of a shift",
    before="only the owner of a plan could resume it; the others had to take a copy",
)
def shared_folder(stage: Stage) -> str:
    with people(stage, 0o2770, ONCALL) as users:
        handler = str(users.write("slow.py", SLOW, ANNA, 0o640))
        topic = stage.topic(MESSAGES)
        drain = users.start(ANNA, *stage.run_words(topic, handler, "-c", "4", "--plan", "p.json"))
        resume = ("resume", "p.json", "--handler", handler, "--yes", "-c", "4")
        for uid in (BEN, ANNA, BEN):
            journals = {path.name for path in users.folder.glob("p.json.journal-*")}
            drain.until(lambda: _journal(users, journals), "a journal of its own")  # noqa: B023
            made = [path for path in users.folder.iterdir() if "p.json" in path.name]
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in made}
            ensure(set(modes.values()) == {"0o660"} and len(modes) >= 3, f"modes {modes}")
            drain.kill()
            users.refuses(0, "belongs to", *resume)
            drain = users.start(uid, *resume)
        drain.ends(0)
        ensure(stage_committed(stage, topic) == MESSAGES, "the group is not at the end")
        users.folder.chmod(0o2777)
        users.refuses(ANNA, "belongs to", "plan", "show", "p.json")
        users.folder.chmod(0o2775)
        (users.folder / "p.json").chmod(0o664)
        users.refuses(MALLORY, "belongs to", "plan", "show", "p.json")
    return "members resume one another's drain after each kill; root and strangers are refused"


def _journal(users: People, before: set[str]) -> bool:
    found = [path for path in users.folder.glob("p.json.journal-*") if path.name not in before]
    return any(path.read_bytes().count(b"\n") > 1 for path in found)


def stage_committed(stage: Stage, topic: str) -> int | None:
    with stage.cluster() as cluster:
        return cluster.committed(topic, topic, (0,))[0]


@case(
    "a mailed plan with code in it, and --yes",
    before="--yes loaded the handler, the decoder or the split that the plan named",
    quick=True,
)
def mailed_code(stage: Stage) -> str:
    plan = stage.folder / "p.json"
    stage.drain(stage.topic(20), "count", "--plan", str(plan))
    evil, ran = trap(stage.folder)
    with_split = {"handler": "produce", "options": {"topic": "wide", "split": str(evil)}}
    decodes = {"handler": "count", "payloads": PayloadSettings(value_format=f"{evil}:handle")}
    for changes, option in (
        ({"handler": str(evil)}, f"--handler {evil}"),
        (with_split, f"--set split={evil}"),
        (decodes, f"--value-format {evil}:handle"),
    ):
        known = PlanFile(plan).load().plan.terms
        change_plan(plan, **({"payloads": known.payloads, "options": {}} | changes))
        for more in ((), ("--dry-run",)):
            ended = stage.drainer("resume", str(plan), "--yes", *more, code=3)
            ensure(option in ended.text, f"{option} is not the way out: {ended.text[-400:]}")
            ensure(not ran.exists(), f"{option}: its code ran")
        change_plan(plan, payloads=known.payloads, options={})
    return "shown and refused, until the command line names it"


@case(
    "a client file and a handler that everyone can write, as Kubernetes mounts them",
    before="never broken: such files were read from any mount",
)
def read_only_mount(stage: Stage) -> str:
    with people(stage, 0o755) as users:
        config = f"bootstrap.servers={stage.bootstrap}\n"
        client = users.write("mount/client.properties", config, 0, 0o777)
        handler = users.write("mount/handler.py", TRIES, 0, 0o777)
        client.parent.chmod(0o777)
        named = ("--client-config", str(client), "--plan", "p.json")
        words = stage.run_words(stage.topic(20), str(handler), *named)
        users.folder.chmod(0o777)
        users.refuses(ANNA, "is writable by everyone", *words)
        mounted = ("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(client.parent))
        users.runs(ANNA, *words, code=0, by=mounted)
    return "refused, but read from a read-only mount"
