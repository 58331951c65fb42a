"""Records a drain that is killed and resumed, as the picture at the top of the README.

A real shell on a pseudo-terminal types real commands at a real broker; the picture is what it
showed, with pauses cut to ``--pause`` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable
from fcntl import ioctl
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from pyte import Screen, Stream

from drainer.demo.fill import create_topic, fill
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_topic
from scenarios.recording.film import Shot, rows_of, svg

COLUMNS, LINES = 100, 26
PROMPT = "$ "
TYPED_S, LOOK_S = 0.012, 0.2
TOPIC, GROUP, DOCUMENTS, CONCURRENCY = "orders", "indexer", 40_000, 500
TITLE = "A drain of one partition, killed with kill -9, resumed, and what it adds up to"
HANDLER = """\
import asyncio, drainer, orjson


class Reindex(drainer.Handler):
    def split(self, message):
        for doc in orjson.loads(message.value):
            yield drainer.SubMessage(doc, None)

    async def handle(self, sub):
        await asyncio.sleep(0.01)
"""


class Shell:
    """Bash on a pseudo-terminal, and what its screen showed."""

    def __init__(self, folder: Path, servers: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(folder), "TERM": "xterm-256color", "PS1": PROMPT}
        env |= {
            "DRAINER_BOOTSTRAP_SERVER": servers,
            "COLORTERM": "",
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._screen = Screen(COLUMNS, LINES)
        self._stream = Stream(self._screen)
        self._begun_s = monotonic()
        self.shots: list[Shot] = []

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display).rstrip()

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Shows what comes, for so long or until something is to be seen."""
        end_s = monotonic() + seconds
        while monotonic() < end_s and not until():
            if select.select([self._terminal], [], [], LOOK_S / 4)[0]:
                self._stream.feed(os.read(self._terminal, 1 << 16).decode("utf-8", "replace"))
            self._shoot()

    def type(self, command: str) -> None:
        for char in command:
            os.write(self._terminal, char.encode())
            self.watch(TYPED_S)
        self.watch(0.4)
        os.write(self._terminal, b"\r")

    def kill(self) -> None:
        """What runs in it dies at once."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self.pid, 0)

    def _shoot(self) -> None:
        now_s = monotonic() - self._begun_s
        rows, last = rows_of(self._screen), self.shots[-1] if self.shots else None
        if last is None or (now_s - last.at_s >= LOOK_S and rows != last.rows):
            self.shots.append(Shot(now_s, rows))


def message(number: int) -> tuple[bytes, bytes, int]:
    """Updates of 50 documents, by the one key that all messages have."""
    documents = [f"doc-{(number * 50 + each) % DOCUMENTS}" for each in range(50)]
    return b"customer-42", json.dumps(documents).encode(), 0


def act(shell: Shell) -> None:
    def at_prompt() -> bool:
        return shell.text.endswith("\n$")

    shell.watch(1)
    shell.type(
        f"drainer run --topic {TOPIC} --group {GROUP} --handler my_handlers.py:Reindex"
        f" -c {CONCURRENCY} --yes"
    )
    shell.watch(60, until=lambda: "committed   end" in shell.text)
    shell.watch(3)
    shell.kill()
    shell.watch(1.2)
    shell.type(f"drainer resume {TOPIC}.{GROUP}.plan.json -c {CONCURRENCY} --yes")
    shell.watch(1)
    shell.watch(90, until=at_prompt)
    shell.watch(1)


def paced(shots: list[Shot], pause_s: float) -> list[Shot]:
    """The same with no pause above this."""
    made, now_s = [Shot(0.0, shots[0].rows)], 0.0
    for before, shot in pairwise(shots):
        now_s += min(pause_s, shot.at_s - before.at_s)
        made.append(Shot(now_s, shot.rows))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.recording", description=__doc__)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--messages", type=int, default=4_500)
    parser.add_argument("--pause", type=float, default=0.7)
    parser.add_argument("--out", type=Path, default=Path("recording.svg"))
    given = parser.parse_args()
    settings = ClientSettings.load(given.bootstrap_server)
    create_topic(settings, TOPIC)
    try:
        fill(settings, TOPIC, map(message, range(given.messages)))
        with Cluster.connect(settings) as cluster:
            cluster.alter_committed(GROUP, TOPIC, {0: 0})
        with TemporaryDirectory() as folder:
            Path(folder, "my_handlers.py").write_text(HANDLER)
            shell = Shell(Path(folder), given.bootstrap_server)
            try:
                act(shell)
            finally:
                shell.close()
        print(shell.text)
        shots = paced(shell.shots, given.pause)
        print(f"{len(shots)} screens, {shots[-1].at_s:.1f} s")
        given.out.write_text(svg(shots, COLUMNS, TITLE), encoding="utf-8")
    finally:
        delete_topic(settings, TOPIC)
        with Cluster.connect(settings) as cluster:
            cluster.delete_group(GROUP)


main()
