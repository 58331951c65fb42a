"""The command as a person runs it: a process with a folder, an environment and two streams."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command.documented import ensure_documented
from command.forks import Forked, can_fork
from command.record import Record, every_place
from drainer.errors import DrainerError
from drainer.kafka.cluster import Cluster
from drainer.model.plan import OffsetPlan
from kafka.topic import Topic, eventually

PROGRAM = (sys.executable, "-m", "drainer")
ENDS_WITHIN_S = 300.0  # or it hangs; a start of Spark takes a minute where much else runs
ON_THE_LOOP, ON_THREADS, BLOCKS_THE_LOOP = "OnTheLoop", "OnThreads", "BlocksTheLoop"


@dataclass(frozen=True)
class Outcome:
    """Exit code, output and time of a command that ended."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def answer(self) -> dict[str, Any]:
        """Object that -o json gave, with nothing else on stdout."""
        assert self.out.count("\n") == 1, self.out
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> str:
        return self._line("error: ")

    @property
    def hint(self) -> str:
        return self._line("hint: ")

    @property
    def resume_words(self) -> list[str]:
        """The command that it printed to resume, without the program's name."""
        return self.way_out("resume")

    def way_out(self, what: str) -> list[str]:
        """The command that it printed behind a word, without the program's name."""
        program, *words = shlex.split(self._line(f"{what}: "))
        assert program == "drainer"
        return words

    def _line(self, prefix: str) -> str:
        output = [*self.out.splitlines(), *self.err.splitlines()]
        found = [line for line in output if line.startswith(prefix)]
        assert len(found) == 1, output
        return found[0].removeprefix(prefix)


def begin(
    words: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    by: tuple[str, ...] = (),
    *,
    owns_terminal: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """Start the command; forked where that makes no difference, as for one that has a terminal."""
    assert can_fork(env) or not owns_terminal
    if not by and can_fork(env):
        return Forked(words, folder, env, streams, owns_terminal=owns_terminal)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [*by, *PROGRAM, *words],
        cwd=folder,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


class Running:
    """A command that was started. Its streams go to files, so that it never waits for a reader."""

    def __init__(
        self,
        words: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        printed: Path,
        by: tuple[str, ...] = (),
    ) -> None:
        self.words = words
        self.debugs = "--debug" in words or "DRAINER_DEBUG" in env
        self._out = printed.with_suffix(".out")
        self._err = printed.with_suffix(".err")
        self._begun_s = time.monotonic()
        nothing = Path(os.devnull)
        with nothing.open("rb") as none, self._out.open("wb") as out, self._err.open("wb") as err:
            streams = (none.fileno(), out.fileno(), err.fileno())
            self._process = begin(words, folder, env, streams, by)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def prints(self, words: str) -> None:
        """Wait until it printed this on stderr."""
        eventually(
            lambda: words in self.err or not self.running, f"it prints {words!r}", ENDS_WITHIN_S
        )
        assert words in self.err, self.err

    def ended(self, within_s: float = ENDS_WITHIN_S) -> Outcome:
        """Wait for its end, whatever that is."""
        code = self._process.wait(within_s)
        took_s = time.monotonic() - self._begun_s
        if code >= 0:
            ensure_documented(self.words, self._out.read_text())
        return Outcome(code, self._out.read_text(), self.err, took_s)

    def ends(self, code: int, within_s: float = ENDS_WITHIN_S) -> Outcome:
        """Wait for its end, and make sure of its exit code."""
        outcome = self.ended(within_s)
        assert outcome.code == code, f"exit {outcome.code}, not {code}\n{outcome.out}{outcome.err}"
        if not self.debugs:
            assert "Traceback" not in outcome.err + outcome.out, outcome.err
        return outcome

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(ENDS_WITHIN_S)


class Command:
    """``drainer`` in an empty folder, with a recording handler beside it."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.home = home
        self.cluster = cluster  # the command's brokers, as the command sees them
        self.bootstrap = cluster.settings.bootstrap_servers
        self.folder = home / "work"
        self.folder.mkdir()
        self.streams = home / "streams"
        self.streams.mkdir()
        self.handlers = home / "recorder.py"
        shutil.copy(Path(__file__).with_name("recorder.py"), self.handlers)
        self.record = Record(home / "record")
        self.gate = home / "gate"
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("DRAINER")
        }
        self.by: tuple[str, ...] = ()  # a command that becomes it, as nohup does
        self._started: list[Running] = []
        self._topics: dict[Topic, list[str]] = {}

    def topic(
        self,
        values: Sequence[str] = (),
        partitions: int = 1,
        config: dict[str, str] | None = None,
    ) -> Topic:
        """A new topic with these values in each partition; it is deleted after the test."""
        topic = Topic(self.bootstrap, f"t-{uuid.uuid4().hex[:12]}", partitions, config)
        self._topics[topic] = list(values)
        for partition in range(partitions):
            topic.produce(values, partition=partition)
        return topic

    def handler(self, source: str, name: str = "handler.py") -> str:
        """A file of its own with this handler; what ``--handler`` takes."""
        path = self.home / name
        path.write_text(source)
        return str(path)

    def committed(self, topic: Topic) -> dict[int, int | None]:
        """Committed offsets of the command's group by partition."""
        return self.cluster.committed(self.group(topic), topic.name, range(topic.partitions))

    def ensure_drained(self, topic: Topic, *, once: bool = False) -> None:
        """Ensure that all of a topic was handled, in order, and committed; ``once``: no repeats."""
        values = self._topics[topic]
        done = self.record.done()
        places = {place for n in range(topic.partitions) for place in every_place(values, n)}
        assert set(done) == places
        assert not once or len(done) == len(places)
        self.record.check_order()
        assert self.committed(topic) == dict.fromkeys(range(topic.partitions), len(values))

    def group(self, topic: Topic) -> str:
        return f"g-{topic.name}"

    def plan(self, topic: Topic) -> Path:
        return self.folder / f"{topic.name}.{self.group(topic)}.plan.json"

    @property
    def left_behind(self) -> list[str]:
        """The names of what is in the folder."""
        return sorted(path.name for path in self.folder.iterdir())

    def what(self, topic: Topic, handler: str = ON_THE_LOOP) -> list[str]:
        """Options of what is drained; a class of the recorder goes by its name."""
        reference = f"{self.handlers}:{handler}" if handler[0].isupper() else handler
        where = ["-b", self.bootstrap, "--topic", topic.name, "--group", self.group(topic)]
        return [*where, "--handler", reference]

    def options(self, **options: object) -> list[str]:
        """The handler's own options, ``record`` among them."""
        pairs = {"record": self.record.path, **options}
        return [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Running:
        streams = self.streams / str(len(self._started))
        running = Running(
            (*words, *self._dropped(words)),
            self.folder,
            self.env | dict(env or {}),
            streams,
            self.by,
        )
        self._started.append(running)
        return running

    def _dropped(self, words: Sequence[str]) -> Iterator[str]:
        """The options that drop those of the last run which an unattended resume lacks."""
        if words[:1] != ("resume",) or "--yes" not in words:
            return
        with suppress(OSError, ValueError, DrainerError):
            last = OffsetPlan.decode((self.folder / words[1]).read_bytes()).account.resuming
            given = {each.partition("=")[0] for each in words}
            for name in last.handler_options.keys() - given:
                yield from ("--set", f"{name}=")

    def __call__(self, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> Outcome:
        return self.start(*words, env=env).ends(code)

    def begin(
        self, topic: Topic, *more: str, handler: str = ON_THE_LOOP, **options: object
    ) -> Running:
        """Start a drain of everything in the topic; no bad message is taken for an outage in it."""
        what = [*self.what(topic, handler), "--from", "earliest", "--yes", "--tune", "max-doubt=0"]
        return self.start("run", *what, *self.options(**options), *more)

    def drain(
        self,
        topic: Topic,
        *more: str,
        code: int = 0,
        handler: str = ON_THE_LOOP,
        **options: object,
    ) -> Outcome:
        return self.begin(topic, *more, handler=handler, **options).ends(code)

    def resume(self, topic: Topic, *more: str, code: int = 0, **options: object) -> Outcome:
        words = self.resume_of(self.plan(topic))
        return self(*words, *self.options(**options), *more, code=code)

    def resume_of(self, plan: Path | str) -> list[str]:
        """The words of a resume that names the plan's handler, which --yes does not confirm."""
        handler = json.loads((self.folder / plan).read_bytes())["handler"]
        return ["resume", str(plan), "--handler", handler, "--yes"]

    def wait_for(
        self, running: Running, mark: str, count: int, within_s: float = ENDS_WITHIN_S
    ) -> None:
        """Wait until so many sub-messages were begun, or done."""

        def found() -> bool:
            path = self.record.path
            return path.exists() and path.read_bytes().count(f'\n["{mark}"'.encode()) >= count

        eventually(lambda: found() or not running.running, f"{count} are {mark}", within_s)
        assert found(), running.err

    def kill_amid(
        self,
        topic: Topic,
        *more: str,
        mark: str = "done",
        count: int = 1,
        handler: str = ON_THE_LOOP,
        **options: object,
    ) -> Path:
        """Begin a drain, kill it once so many sub-messages are done (or begun); its plan."""
        running = self.begin(topic, *more, handler=handler, **options)
        self.wait_for(running, mark, count)
        running.kill()
        return self.plan(topic)

    def close(self) -> None:
        """Kill what still runs, and delete the topics."""
        for running in self._started:
            if running.running:
                running.kill()
        for topic in self._topics:
            topic.discard()
