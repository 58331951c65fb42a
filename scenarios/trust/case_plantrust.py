"""Cases of files that were trusted too far: plans, handlers' folders, expressions."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.store.plan_file import PlanFile
from scenarios.trust.case import Broken, Stage, case, ensure

TRAP = "from pathlib import Path\nPath({ran!r}).touch()\n\n\ndef handle(sub):\n    pass\n"


def trap(folder: Path) -> tuple[Path, Path]:
    """Make a handler that leaves a mark when it is imported. Return it, and the place of the
    mark."""
    ran = folder / "ran"
    handler = folder / "trap.py"
    handler.write_text(TRAP.format(ran=str(ran)), encoding="utf-8")
    return handler, ran


@contextmanager
def untouched_address() -> Iterator[str]:
    """Provide the address of a server that nothing may connect to. Raises Broken if something
    did."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(BlockingIOError):
            server.accept()
            raise Broken("it connected to the address that the plan names")


def change_plan(path: Path, **changes: Any) -> OffsetPlan:
    """Write a plan with other values as a whole, with its digest, and return it."""
    file = PlanFile(path)
    known = file.load().plan
    of_account = {name: changes.pop(name) for name in [*changes] if hasattr(known.account, name)}
    terms, account = replace(known.terms, **changes), replace(known.account, **of_account)
    changed = OffsetPlan(terms, account)
    file.write(changed)
    return changed


def evil_library(folder: Path) -> tuple[Path, Path]:
    """Make a library that leaves a mark when it is loaded. Return it, and the place of the mark."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Broken("there is no C compiler to make the plugin with")
    ran, library, source = folder / "ran", folder / "evil.so", folder / "evil.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void)"
        f' {{ FILE *f = fopen("{ran}", "w"); if (f) fclose(f); }}\n',
        encoding="ascii",
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library, ran


@case(
    "plugin.library.paths in a client's properties",
    before="librdkafka loaded the library: its code ran",
)
def no_native_plugin(stage: Stage) -> str:
    library, ran = evil_library(stage.folder)
    where = ("-b", stage.bootstrap, "--topic", stage.topic(20), "--group", "g")
    stage.drainer("inspect", *where, "-X", f"plugin.library.paths={library}", code=2)
    ensure(not ran.exists(), "the library's code ran")
    return "refused before librdkafka sees it"


@case(
    "a forged plan names its own broker and handler",
    before="plan verify connected to it, over the client file's; resume imported it at once",
    quick=True,
)
def forged_plan(stage: Stage) -> str:
    topic = stage.topic(20)
    config = stage.folder / "client.properties"
    config.write_text(f"bootstrap.servers={stage.bootstrap}\n", encoding="utf-8")
    plan = stage.folder / "p.json"
    more = ("--client-config", str(config), "--plan", str(plan))
    stage.drain(topic, "count", *more)
    handler, ran = trap(stage.folder)
    with untouched_address() as brokers:
        change_plan(plan, bootstrap_servers=brokers, handler=str(handler))
        stage.drainer("plan", "verify", str(plan))
        change_plan(plan, client_config=None)
        ended = stage.drainer("resume", str(plan), code=3)
        ensure(brokers in ended.err and str(handler) in ended.err, ended.err)
        ensure(not ran.exists(), "the handler was imported before the question")
    return (
        "the client file wins; broker and handler are shown, and need a confirmation, before either"
    )


@case(
    "a forged plan has options for the command that `plan show` prints to resume it",
    before="the command had no options of the plan",
    quick=True,
)
def forged_options(stage: Stage) -> str:
    plan = stage.folder / "p.json"
    stage.drain(stage.topic(3), "count", "--plan", str(plan))
    good = plan.read_bytes()
    named = ("--handler", "evil.py:H"), ("--master", "spark://evil:7077")
    for words in (*named, ("--tune", "on-end=sh evil"), ("--set", "split=evil.py"), ("--yes",)):
        plan.write_bytes(good)
        change_plan(plan, resuming=Resuming(words))
        shown = stage.drainer("plan", "show", str(plan), code=3)
        ensure("evil" not in shown.text and "--yes" not in shown.text, shown.text)
    return "the plan is refused"


@case(
    "names as long as Kafka allows, and a group with a slash",
    before="OSError: File name too long; a folder of the group's name was looked for",
)
def any_name(stage: Stage) -> str:
    long = stage.topic(20, name=stage.name().ljust(249, "t"))
    for topic, group in ((long, "g" * 249), (stage.topic(20), "../team/indexer")):
        stage.drain(topic, group=group)
    plans = [path.name for path in stage.folder.glob("*.plan.json")]
    ensure(len(plans) == 2, f"plans: {plans}")
    return f"drained; plans have names of {' and '.join(str(len(name)) for name in plans)} letters"


@case(
    "a link where a plan, a journal or a report is written first",
    before="what the links led to was written over",
)
def links_are_not_followed(stage: Stage) -> str:
    topic = stage.topic(20)
    precious = stage.folder / "precious"
    precious.write_text("mine", encoding="utf-8")
    names = (".p.json.new", ".r.html.new", *(f"p.json.journal-{n}" for n in range(5)))
    for name in names:
        (stage.folder / name).symlink_to(precious)
    words = ("count", "--plan", "p.json", "--report", "r.html")
    stage.drain(topic, *words)
    ensure(precious.read_text(encoding="utf-8") == "mine", "it was written over")
    modes = {(stage.folder / name).stat().st_mode & 0o777 for name in ("p.json", "r.html")}
    ensure(modes == {0o600}, f"modes {[oct(mode) for mode in modes]}")
    return "nothing is written through a link; plan and report have mode 0600"


@case(
    "a rule_engine.py beside the handler",
    before="drainer imported it in the place of the library",
)
def no_library_is_replaced(stage: Stage) -> str:
    handler, _ = trap(stage.folder)
    (stage.folder / "rule_engine.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    words = (str(handler), "--skip", "key == '3'")
    stage.drain(stage.topic(20), *words)
    return "the handler's folder comes last: the library is the installed one"


@case(
    "the pattern (a+)+b in a rule, and a payload of thirty a",
    before="the drain stood for ever; Ctrl-C did not end it",
)
def patterns_end(stage: Stage) -> str:
    topic = stage.topic((b"k", b"a" * 10_000) for _ in range(100))
    words = ("count", "--skip", "payload =~ '(a+)+b'", "-o", "json")
    stage.drain(topic, *words)
    return "100 payloads of 10,000 letters drained: regular expressions are RE2's"
