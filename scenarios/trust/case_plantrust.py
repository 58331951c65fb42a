"""Files that are trusted too far: plans, handlers' folders, expressions."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from drainer.demo.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from drainer.store.plan_file import PlanFile
from scenarios.trust.case import NotHeld, Stage, case, insist

TRAP = "from pathlib import Path\nPath({ran!r}).touch()\n\n\ndef handle(sub):\n    pass\n"


def a_topic(stage: Stage, name: str | None = None, messages: int = 20) -> str:
    """A topic of one partition with some messages, a key each."""
    name = name or stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, name)
    fill(settings, name, ((b"%d" % number, b"{}", 0) for number in range(messages)))
    return name


def trap(folder: Path) -> tuple[Path, Path]:
    """A handler that leaves a mark when it is imported, and where that mark is."""
    ran = folder / "ran"
    handler = folder / "trap.py"
    handler.write_text(TRAP.format(ran=str(ran)), encoding="utf-8")
    return handler, ran


def evil_library(folder: Path) -> tuple[Path, Path]:
    """A library that leaves a mark when it is loaded, and where that mark is."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NotHeld("there is no C compiler to make the plugin with")
    ran, library, source = folder / "ran", folder / "evil.so", folder / "evil.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void)"
        f' {{ FILE *f = fopen("{ran}", "w"); if (f) fclose(f); }}\n',
        encoding="ascii",
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library, ran


@case(
    16,
    "plugin.library.paths in a client's properties",
    before="librdkafka loaded the library: its code ran",
)
def no_native_plugin(stage: Stage) -> str:
    library, ran = evil_library(stage.folder)
    topic = a_topic(stage)
    ended = stage.drainer(
        *("inspect", "-b", stage.bootstrap, "--topic", topic, "--group", "g"),
        *("-X", f"plugin.library.paths={library}"),
    )
    insist(not ran.exists(), "the library's code ran")
    insist(ended.returncode == 2, ended.stderr)
    return "refused before librdkafka sees it"


@case(
    20,
    "a forged plan names its own broker and handler",
    before="plan verify connected to it, over the client file's; resume imported it at once",
)
def forged_plan(stage: Stage) -> str:
    topic = a_topic(stage)
    config = stage.folder / "client.properties"
    config.write_text(f"bootstrap.servers={stage.bootstrap}\n", encoding="utf-8")
    plan = stage.folder / "p.json"
    ended = stage.drainer(
        *("run", "--topic", topic, "--group", topic, "--handler", "count", "--from", "earliest"),
        *("--client-config", str(config), "--plan", str(plan), "--yes"),
    )
    insist(ended.returncode == 0, ended.stderr)
    handler, ran = trap(stage.folder)
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.setblocking(False)
        brokers = f"127.0.0.1:{evil.getsockname()[1]}"
        file = PlanFile(plan)
        forged = replace(file.load().plan, bootstrap_servers=brokers, handler=str(handler))
        file.write(forged)
        ended = stage.drainer("plan", "verify", str(plan))
        insist(ended.returncode == 0, ended.stderr)
        file.write(replace(forged, client_config=None))
        ended = stage.drainer("resume", str(plan))
        insist(ended.returncode == 3 and brokers in ended.stderr, ended.stderr)
        insist(str(handler) in ended.stderr, ended.stderr)
        insist(not ran.exists(), "the handler was imported before anyone was asked")
        with suppress(BlockingIOError):
            evil.accept()
            raise NotHeld(f"it connected to {brokers}, as the plan says")
    plan.chmod(0o666)
    ended = stage.drainer("resume", str(plan), "--yes")
    insist(ended.returncode == 3 and "plan take" in ended.stderr, ended.stderr)
    return "the client file wins; broker and handler are shown, and asked about, before either"


def drain_all(stage: Stage, topic: str, group: str, *more: str) -> tuple[str, ...]:
    where = ("run", "-b", stage.bootstrap, "--topic", topic, "--group", group)
    return (*where, "--from", "earliest", "--yes", *more)


@case(
    19,
    "names as long as Kafka allows, and a group with a slash",
    before="OSError: File name too long; a folder of the group's name was looked for",
)
def any_name(stage: Stage) -> str:
    long = a_topic(stage, stage.name().ljust(249, "t"))
    for topic, group in ((long, "g" * 249), (a_topic(stage), "../team/indexer")):
        ended = stage.drainer(*drain_all(stage, topic, group, "--handler", "count"))
        insist(ended.returncode == 0, ended.stderr)
    plans = [path.name for path in stage.folder.glob("*.plan.json")]
    insist(len(plans) == 2, f"plans: {plans}")
    return f"drained; plans have names of {' and '.join(str(len(name)) for name in plans)} letters"


@case(
    19,
    "a link where a plan, a journal or a report is written first",
    before="what the links led to was written over",
)
def links_are_not_followed(stage: Stage) -> str:
    topic = a_topic(stage)
    precious = stage.folder / "precious"
    precious.write_text("mine", encoding="utf-8")
    names = (".p.json.new", ".r.html.new", *(f"p.json.journal-{n}" for n in range(5)))
    for name in names:
        (stage.folder / name).symlink_to(precious)
    words = ("--handler", "count", "--plan", "p.json", "--report", "r.html")
    ended = stage.drainer(*drain_all(stage, topic, topic, *words))
    insist(precious.read_text(encoding="utf-8") == "mine", "it was written over")
    insist(ended.returncode == 0, ended.stderr)
    modes = {(stage.folder / name).stat().st_mode & 0o777 for name in ("p.json", "r.html")}
    insist(modes == {0o600}, f"modes {[oct(mode) for mode in modes]}")
    return "nothing is written through a link; plan and report have mode 0600"


@case(
    23,
    "a rule_engine.py beside the handler",
    before="drainer imported it in the place of the library",
)
def no_library_is_replaced(stage: Stage) -> str:
    handler, _ = trap(stage.folder)
    (stage.folder / "rule_engine.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    words = ("--handler", str(handler), "--skip", "key == '3'")
    ended = stage.drainer(*drain_all(stage, topic := a_topic(stage), topic, *words))
    insist(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr}")
    return "the handler's folder comes last: the library is the installed one"


@case(
    23,
    "the pattern (a+)+b in a rule, and a payload of thirty a",
    before="the drain stood for ever; Ctrl-C did not end it",
)
def patterns_end(stage: Stage) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    fill(settings, topic, ((b"k", b"a" * 10_000, 0) for _ in range(100)))
    words = ("--handler", "count", "--skip", "payload =~ '(a+)+b'", "-o", "json")
    ended = stage.drainer(*drain_all(stage, topic, topic, *words))
    insist(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr}")
    return "100 payloads of 10,000 letters drained: regular expressions are RE2's"


@case(
    23,
    "a rules file with an umlaut, in the C locale",
    before="'ascii' codec can't decode byte 0xc3",
)
def files_are_utf8(stage: Stage) -> str:
    rules = stage.folder / "rules.toml"
    rules.write_text('[[skip]]\nname = "für alle"\nkeys = ["3"]\n', encoding="utf-8")
    env = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = ("--handler", "count", "--rules", str(rules), "-o", "json")
    ended = stage.drainer(*drain_all(stage, topic := a_topic(stage), topic, *words), env=env)
    insist(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr}")
    return "read as UTF-8"
