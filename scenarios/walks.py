"""The walks of docs/contributing/architecture.md, and how many files know each optional feature.

``python -m scenarios.walks`` prints, for each walk, the files that define or pass on the thing.
Walk a is a message from fetch to commit, traced in a real drain on a broker of its own or at
``--bootstrap-server``: the modules whose functions have the message or one of its sub-messages
among their arguments, and those on the call stack when the client reads it, when `handle` is
called, and when journal, plan and committed offset are written. Walks b to e are searches for the
names of something that is there already, in the product without extensions. A file knows an
optional feature if it has one of the feature's names; the feature's own extension does not count.
``--write`` puts the lists into the page.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from drainer.kafka.settings import ClientSettings
from drainer.message import Message, SubMessage
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/contributing/architecture.md"
BEGIN, END = "<!-- walks: python -m scenarios.walks --write -->\n", "<!-- end of walks -->\n"
CORE = ("cli", "control", "core", "engine", "kafka", "model", "operations", "policy", "store")
CALLS = {"consume", "commit", "write", "replace"}  # of the client and of files, seen from outside
RUNNERS = {"run_until_complete", "run_forever", "call_soon_threadsafe"}  # of loops and threads
LOCK = "kafka/lock.py"  # it commits a number of its own
LOOK = "operations/look.py"  # it splits a few messages before the drain
HANDLER = "handler_of_the_walk.py"

# What stands for a change: its title, where it is looked for, and the names that are its own.
SEARCHES = {
    "b": ("`--rate`, from the option to its effect", CORE, {"rate", "--rate"}),
    "c": ("a field of the summary (`outages`)", (*CORE, "view"), {"outages"}),
    "d": ("an option of `run` (`--tune max-outage`)", (*CORE, "view"), {"max_outage_s"}),
    "e": ("a failure policy (`park`)", (*CORE, "view"), {"PARK", "park"}),
}

# The optional features: the names that are their own, and the extension that is about them.
FEATURES = {
    "`--skip`": (r"RuleFilter|RuleStatus|rule_filter|undecided_lines|skip_fields", ""),
    "`--divert`": (r"[Dd]ivert\w*|\w*_diverted", ""),
    "`--first`, `--only`": (
        r"Priority(Class|Classes|Dispatcher|Options)|Class(Status|Map|Waits)|classes"
        r"|\w*class_(of|statuses)",
        "",
    ),
    "`--deadline`": (r"\w*[Dd]eadline\w*", ""),
    "`--rate`": (r"rate|Rate", "limits"),
    "`--broker-limits`": (
        r"Cap|Cap(Curve|Point)|Caps?Status|BrokerCaps|(read|write)_(cap|binds)|\w+_limits",
        "limits",
    ),
    "dead letters": (r"\w*[Ll]etters?(_\w+)?|DeadLetter\w*", "letters"),
}


def files_that_name(names: set[str], folders: tuple[str, ...]) -> list[str]:
    """Return the files of these folders that have one of the names as an identifier or a whole
    string."""
    return files_where(lambda name: name in names, folders)


def files_where(is_one: Callable[[str], object], folders: tuple[str, ...]) -> list[str]:
    """Return the files of these folders that have an identifier or a whole string of this kind."""
    paths = (path for folder in folders for path in (ROOT / "drainer" / folder).rglob("*.py"))
    return sorted(
        path.relative_to(ROOT / "drainer").as_posix()
        for path in paths
        if any(map(is_one, _names(path)))
    )


def files_of(pattern: str, extension: str) -> list[str]:
    """Return the files that know a feature, without those of its own extension."""
    found = files_where(re.compile(pattern).fullmatch, (".",))
    return [file for file in found if not extension or not file.startswith(f"{extension}/")]


@cache
def _names(path: Path) -> frozenset[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="figures")):
                pass  # A figure is printed, whatever it is of.
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.keyword(arg=str() as name) | ast.Constant(value=str() as name):
                found.add(name)
    return frozenset(found)


# --- walk a: traced in a process of its own


class Tracer:
    """The modules of the product that one message leads through, from its reading to its commit."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._reading: dict[int, set[str]] = {}  # by thread: the stack of its last read
        self._was_read = False
        self._committed = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._committed or event not in {"call", "c_call"}:
            return
        module, name = _module_of(frame), getattr(arg, "__name__", "")
        if event == "call" and _has_message(frame) and (module or _is_handler(frame)):
            if LOOK in _stack(frame):
                return
            if not self._was_read:
                self._was_read = True
                self.modules.update(*self._reading.values())
            self.modules |= set(_stack(frame)) if _is_handler(frame) else {module}
        elif module and module != LOCK and event == "c_call" and name in CALLS:
            if name == "consume":
                if LOOK not in (stack := set(_stack(frame))):
                    self._reading[threading.get_ident()] = stack
            elif self._was_read and (name == "commit" or module.startswith("store/")):
                self.modules |= set(_stack(frame))
                self._committed = name == "commit"


def _has_message(frame: FrameType) -> bool:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(_is_of_message(frame.f_locals.get(name)) for name in names)


def _is_handler(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(f"/{HANDLER}")


def _is_of_message(value: object) -> bool:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, Message | SubMessage)


def _module_of(frame: FrameType) -> str:
    _, found, path = frame.f_code.co_filename.partition(f"{ROOT}/drainer/")
    return path if found and path.startswith(CORE) else ""


def _stack(frame: FrameType | None) -> Iterator[str]:
    """Return the modules on the stack, up to what runs the event loop or the thread."""
    while frame is not None and not RUNNERS & set(frame.f_code.co_names):
        if module := _module_of(frame):
            yield module
        frame = frame.f_back


def trace(words: list[str]) -> None:
    """Run a command of drainer in this process, and print the modules of its message."""
    from drainer.cli import main  # noqa: PLC0415 - in the process that is traced alone

    tracer = Tracer()
    sys.argv = ["drainer", *words]
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        main()
    finally:
        sys.setprofile(None)
        print("walk:", *sorted(tracer.modules), file=sys.stderr)


def trace_a_message(bootstrap: str) -> list[str]:
    """Return the modules that a message with two sub-messages leads through, in one process."""
    settings, topic = ClientSettings.load(bootstrap), f"walk-{uuid.uuid4().hex[:8]}"
    create_topic(settings, topic)
    fill(settings, topic, [(b"key", b"value", 0)])
    where = ["-b", bootstrap, "--topic", topic, "--group", topic, "--from", "earliest", "--yes"]
    words = ["--quiet", "run", *where, "--handler", HANDLER, "--engine", "process"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / HANDLER).write_text(
            "import asyncio, drainer\n\n"
            "def split(message):\n"
            "    yield drainer.SubMessage('a')\n"
            "    yield drainer.SubMessage('b')\n\n"
            "async def handle(sub):\n"
            "    await asyncio.sleep(0.3)\n"
        )
        ended = subprocess.run(
            [sys.executable, __file__, "--trace", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    (modules,) = re.findall(r"^walk: (.*)$", ended.stderr, re.M)
    return str(modules).split()


# --- the page


def lists(bootstrap: str) -> str:
    """Return the lists of files by walk, as the page has them."""
    found = {"a": ("a message from fetch to commit, in one process", trace_a_message(bootstrap))}
    found |= {
        key: (title, files_that_name(names, folders))
        for key, (title, folders, names) in SEARCHES.items()
    }
    lines = ["walk | files", "---|---"]
    for key, (title, files) in found.items():
        lines.append(f"{key}. {title} | {len(files)}: {', '.join(f'`{file}`' for file in files)}")
    lines += ["", "optional feature | files that know it", "---|---"]
    for title, feature in FEATURES.items():
        lines.append(f"{title} | {len(files_of(*feature))}")
    return "\n".join(lines) + "\n"


@contextmanager
def _broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        yield broker.bootstrap_servers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.walks", description=__doc__)
    parser.add_argument(
        "-b", "--bootstrap-server", help="a broker that runs already; by default one is started"
    )
    parser.add_argument("--write", action="store_true", help="write the lists into the page")
    options = parser.parse_args()
    with _broker(options.bootstrap_server) as bootstrap:
        text = lists(bootstrap)
    print(text, end="")
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trace"]:
        trace(sys.argv[2:])
    else:
        main()
