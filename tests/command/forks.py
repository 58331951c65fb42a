"""A server that has loaded ``drainer`` once, and forks a process for each command of the tests.

A start so costs a tenth of the processor time. A forked process is a process like any other: it
has its own pid, streams, folder, environment and signals. What depends on how an interpreter starts
(its locale, ``PYTHON…`` variables, the words of its process) is started for real.

The server also forks the processes that send requests to coordinators, of which each command and
each connection of a test has one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import typer.main

AT_START = ("PYTHON", "LC_", "LANG")  # what an interpreter reads when it starts
REQUEST_BYTES = 1 << 17
COORDINATOR = "drainer.kafka.coordinator"
# What commands load when they need it, and what takes its time, so that no child pays for it.
LOADED = (
    "asyncio",
    "concurrent.futures.thread",
    "drainer.cli",
    "typer._adapters",
    "rich.markdown",
    "numpy",
    "rule_engine.ast",
    "re2",
    "drainer.handlers",
    "drainer.handlers.produce",
    "drainer.metrics.server",
    "drainer.view.report.page",
    "drainer.limits.search.search",
    "prometheus_client",
    "jinja2",
    "pyspark.cloudpickle",
)
# An estimate measures this machine, for a second of it: to be near is enough here.
CALIBRATED_WITH = {"SUB_MESSAGES": 2_000}


class Forked:
    """A forked ``python -m MODULE WORDS``, with as much of ``subprocess.Popen`` as tests need."""

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        owns_terminal: bool = False,
        module: str = "drainer",
    ) -> None:
        self.returncode: int | None = None
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(_server())
        requested = {
            "words": words,
            "folder": str(folder),
            "env": dict(env),
            "terminal": owns_terminal,
            "module": module,
        }
        request = json.dumps(requested).encode()
        assert len(request) < REQUEST_BYTES
        socket.send_fds(self._server, [request], streams)
        self.pid = int(self._server.recv(64))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int(self._server.recv(64))
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # It may have ended since.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork(env: Mapping[str, str]) -> bool:
    """Whether an interpreter that started with this environment is like the server."""

    def at_start(of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in of.items() if name.startswith(AT_START)}

    return at_start(env) == at_start(os.environ)


def fork_coordinator(*_: Any, **__: Any) -> Forked:
    """Start the process for requests to coordinators, as ``subprocess.Popen`` would."""
    requests, to_child = os.pipe()
    from_child, answers = os.pipe()
    try:
        with Path(os.devnull).open("wb") as nothing:
            streams = (requests, answers, nothing.fileno())
            child = Forked((), Path("/"), os.environ, streams, module=COORDINATOR)
    finally:
        os.close(requests)
        os.close(answers)
    child.stdin, child.stdout = os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb")
    return child


FORKING = SimpleNamespace(Popen=fork_coordinator, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)


@cache
def _server() -> str:
    """Address of the server, which starts when it is first needed and ends with the tests."""
    if __name__ == "__main__":  # This is a process that the server has forked.
        return f"\0{sys.argv[1]}"
    address = f"\0drainer-tests-{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, address.removeprefix("\0")],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.stdin.close)
    return address


# --- in the server


def serve(address: str) -> tuple[str, list[str]]:
    """Fork on request; return in the child, with the module to run and the words of its command."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + address)
    listener.listen(64)
    print("ready", flush=True)
    children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process
    while True:
        for ready in select.select([0, listener.fileno(), *children], [], [])[0]:
            if ready == listener.fileno():
                client, _ = listener.accept()
                request, fds, _, _ = socket.recv_fds(client, REQUEST_BYTES, 3)
                pid = os.fork()
                if pid == 0:
                    for each in (listener, client, *(client for _, client in children.values())):
                        each.close()
                    for fd in children:
                        os.close(fd)
                    return become(json.loads(request), fds)
                for fd in fds:
                    os.close(fd)
                client.send(str(pid).encode())
                children[os.pidfd_open(pid)] = (pid, client)
            elif ready == 0:
                os._exit(0)  # the tests are over
            else:
                pid, client = children.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with contextlib.suppress(OSError), client:
                    client.send(str(code).encode())


def become(request: dict[str, Any], fds: Sequence[int]) -> tuple[str, list[str]]:
    """Make the child the process that was requested; return its module and its words."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    if folder := os.environ.get("XDG_RUNTIME_DIR"):  # It sees no other drains of the machine.
        vars(import_module("drainer.control.place")).update(USERS=Path(folder), TMP=Path(folder))
    time.tzset()
    os.chdir(request["folder"])
    sys.path.insert(0, str(Path.cwd()))  # as -m does
    _renew("stdin", io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False))))
    _renew("stdout", _writer(1, "strict", by_line=os.isatty(1)))
    _renew("stderr", _writer(2, "backslashreplace", by_line=True))
    return request["module"], request["words"]


def _writer(number: int, errors: str, *, by_line: bool) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(raw, errors=errors, line_buffering=by_line, write_through=at_once)


def _renew(name: str, stream: io.TextIOWrapper) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def leave(code: int) -> None:
    """End as an interpreter does, without taking itself apart: that copies all of the server."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way ends a fork
    atexit._run_exitfuncs()  # noqa: SLF001 - no public way ends a fork
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in LOADED:
        import_module(name)
    # The commands and their options, which each start makes of the functions' signatures.
    typer.main.get_command = cache(typer.main.get_command)
    made: Any = typer.main.get_command(import_module("drainer.cli.app").app)
    dict(made.commands)
    vars(import_module("drainer.insight.measurement")).update(CALIBRATED_WITH)
    vars(import_module(COORDINATOR))["subprocess"] = FORKING
    gc.collect()
    gc.freeze()
    _server()  # It is asked for the address before the arguments are those of a command.
    module, words = serve(sys.argv[1])
    sys.argv = ["drainer", *words]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            leave(ended.code)
        raise
    leave(0)
