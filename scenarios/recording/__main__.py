"""Records a drain that is killed and resumed, as the picture at the top of the README.

Two real shells on pseudo-terminals run real commands against a real broker. The picture shows what
they showed, with pauses cut to ``--pause`` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
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

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_group, delete_topic
from scenarios.fill import create_topic, fill
from scenarios.recording.film import Shot, rows_of, rule, svg

COLUMNS, UPPER_LINES, LOWER_LINES = 100, 26, 6
PROMPT, KILLED = "$ ", "Killed"
TYPED_S, TYPED_AT_ONCE, LOOK_S = 0.04, 4, 0.2
TOPIC, GROUP, DOCUMENTS, CONCURRENCY = "orders", "indexer", 40_000, 500
PLAN = f"{TOPIC}.{GROUP}.plan.json"
BY_HANDLER = "-H my_handlers.py:Reindex"
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
    """Bash on a pseudo-terminal, and what its screen shows."""

    def __init__(self, folder: Path, servers: str, lines: int) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(folder), "TERM": "xterm-256color", "PS1": PROMPT}
        env |= {
            "DRAINER_BOOTSTRAP_SERVER": servers,
            "COLORTERM": "",
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "XDG_RUNTIME_DIR": str(folder),
        }
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)
        os.set_inheritable(self.terminal, False)  # Otherwise the other shell would keep it open.
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, COLUMNS, 0, 0))
        self.screen = Screen(COLUMNS, lines)
        self._stream = Stream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display).rstrip()

    @property
    def is_at_prompt(self) -> bool:
        return self.text.split("\n")[-1] == PROMPT.strip()

    def read(self) -> None:
        """Show what came."""
        while select.select([self.terminal], [], [], 0)[0]:
            text = os.read(self.terminal, 1 << 16).decode("utf-8", "replace")
            # For a reader, the line ends where the cursor of the killed process was.
            self._stream.feed(text.replace(KILLED, f"\r\n{KILLED}"))

    def close(self) -> None:
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


class Film:
    """Two shells, one above the other, and what both showed."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.upper = Shell(folder, servers, UPPER_LINES)
        self.lower = Shell(folder, servers, LOWER_LINES)
        self._begun_s = monotonic()
        self.shots: list[Shot] = []

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Show what comes, for so long or until something is to be seen."""
        end_s = monotonic() + seconds
        while not until() and (left_s := end_s - monotonic()) > 0:
            terminals = [self.upper.terminal, self.lower.terminal]
            select.select(terminals, [], [], min(left_s, LOOK_S / 4))
            self.upper.read()
            self.lower.read()
            self._shoot()

    def type(self, shell: Shell, command: str) -> None:
        for at in range(0, len(command), TYPED_AT_ONCE):
            os.write(shell.terminal, command[at : at + TYPED_AT_ONCE].encode())
            self.watch(TYPED_S)
        self.watch(0.4)
        os.write(shell.terminal, b"\r")

    def close(self) -> None:
        self.upper.close()
        self.lower.close()

    def _shoot(self) -> None:
        """Take a shot, from the moment at which the first command is typed."""
        if not self.upper.text.endswith("--yes") and not self.shots:
            return
        now_s = monotonic() - self._begun_s
        screens = (rows_of(self.upper.screen), (rule(COLUMNS),), rows_of(self.lower.screen))
        rows = tuple(row for screen in screens for row in screen)
        last = self.shots[-1] if self.shots else None
        if last is None or (now_s - last.at_s >= LOOK_S and rows != last.rows):
            self.shots.append(Shot(now_s, rows))


def message(number: int) -> tuple[bytes, bytes, int]:
    """Make a message with updates of 50 documents. All messages have one key."""
    documents = [f"doc-{(number * 50 + each) % DOCUMENTS}" for each in range(50)]
    return b"customer-42", json.dumps(documents).encode(), 0


def act(film: Film) -> None:
    upper, lower = film.upper, film.lower
    film.watch(5, until=lambda: upper.is_at_prompt and lower.is_at_prompt)
    film.type(
        upper,
        f"drainer run -t {TOPIC} -g {GROUP} {BY_HANDLER} -c {CONCURRENCY} --yes",
    )
    film.watch(60, until=lambda: " left, done at " in upper.text)
    film.watch(1)
    film.type(lower, "drainer ps")
    film.watch(20, until=lambda: PLAN in lower.text and lower.is_at_prompt)
    line = next(line for line in lower.text.splitlines() if line.startswith(PLAN))
    pid = max(int(word) for word in line.split() if word.isdecimal())
    film.watch(0.5)
    film.type(lower, f"kill -9 {pid}")
    film.watch(10, until=lambda: KILLED in upper.text)
    film.watch(2)
    film.type(upper, f"drainer resume {PLAN} {BY_HANDLER} -c {CONCURRENCY} --yes")
    film.watch(90, until=lambda: "adds up" in upper.text and upper.is_at_prompt)
    film.watch(1)


def paced(shots: list[Shot], pause_s: float) -> list[Shot]:
    """Return the same shots with no pause above this."""
    made, now_s = [Shot(0.0, shots[0].rows)], 0.0
    for before, shot in pairwise(shots):
        now_s += min(pause_s, shot.at_s - before.at_s)
        made.append(Shot(now_s, shot.rows))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.recording", description=__doc__)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--messages", type=int, default=9_000)
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
            film = Film(Path(folder), given.bootstrap_server)
            try:
                act(film)
            finally:
                film.close()
        print(film.upper.text)
        shots = paced(film.shots, given.pause)
        print(f"{len(shots)} screens, {shots[-1].at_s:.1f} s")
        given.out.write_text(svg(shots, COLUMNS, TITLE), encoding="utf-8")
    finally:
        delete_topic(settings, TOPIC)
        delete_group(settings, GROUP)


if __name__ == "__main__":
    main()
