"""The demo from start to finish: fill, estimate, drain, stop, kill, resume, verify."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from shlex import join
from typing import Any

import orjson

from drainer.demo.service import UPDATE_S, Service
from drainer.errors import EXIT_INTERRUPTED, DrainerError
from drainer.host.process import python_module
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.sandbox.sandbox import down_command
from drainer.view.figures import count, duration
from drainer.view.page import Tone
from drainer.view.terminal import Terminal

CUSTOMER = b"customer-4711"  # The message key that all messages were given, months ago.
MESSAGES, UPDATES_PER_MESSAGE, DOCUMENTS = 3_000, 20, 20_000
HOT, HOT_EVERY = "doc-home", 4  # Every fourth message updates this document, too.
MESSAGES_LEAST = 300  # With fewer, the drain could be over before it is stopped.
CONCURRENCY = 500
SEED = 20251121
TOPIC, GROUP, OWN_GROUP = "demo", "indexer", "mine"
# The demo stops the drain, and later kills it, at these shares of the updates.
STOPPED_AT, KILLED_AT = 0.3, 0.6
LOOK_S, TIMEOUT_S = 0.1, 30.0


def values(messages: int) -> Iterator[bytes]:
    """Yield the values of the messages. Each names the documents that it updates."""
    chance = random.Random(SEED)
    for number in range(messages):
        documents = [f"doc-{n:05}" for n in chance.sample(range(DOCUMENTS), UPDATES_PER_MESSAGE)]
        if number % HOT_EVERY == 0:
            documents[0] = HOT
        updates = [{"id": each, "version": number} for each in documents]
        yield orjson.dumps({"event": number, "updates": updates})


def fill(settings: ClientSettings, topic: str, messages: int, sandbox: Path) -> None:
    """Write the messages to a topic. Raises DrainerError when one of them can't be written."""
    conf = settings.produce_conf(ClientLog(), queue_buffering_max_messages=messages)
    producer, failed = settings.producer(conf), list[str]()

    def note(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(f"{topic}/{message.partition()}: {error.str()}")

    for value in values(messages):
        producer.produce(topic, value, CUSTOMER, on_delivery=note)
    if left := producer.flush(TIMEOUT_S):
        failed.append(f"{left} messages are not acknowledged after {duration(TIMEOUT_S)}")
    if failed:
        raise DrainerError(
            f"can't fill topic {topic}: {failed[0]}",
            hint=f"See {sandbox / 'broker.log'}, or begin anew: `{down_command(sandbox)}`",
        )


@dataclass(eq=False)
class Demo:
    """One run of the demo, on a topic of its own. Its commands are those that a user would type.

    ``folder`` is an empty folder for its plan, and ``sandbox`` that of the sandbox.
    """

    _terminal: Terminal
    _folder: Path
    _sandbox: Path
    _cluster: Cluster
    _messages: int
    _concurrency: int

    def __post_init__(self) -> None:
        self._updates = self._messages * UPDATES_PER_MESSAGE
        self._service = Service(self._sandbox)
        self._servers = self._cluster.settings.bootstrap_servers
        taken = self._cluster.topic_names()  # There may be topics of earlier demos.
        ends = chain([""], (f"-{number}" for number in count_from(2)))
        end = next(each for each in ends if TOPIC + each not in taken)
        self._topic, self._group, self._own_group = TOPIC + end, GROUP + end, OWN_GROUP + end

    def perform(self) -> None:
        """Play the demo. The topic and the service stay, for the commands to try next."""
        self._cluster.create_topic(self._topic)
        fill(self._cluster.settings, self._topic, self._messages, self._sandbox)
        self._title("A customer waits, and their whole backlog is on one partition")
        serial_s = self._updates * UPDATE_S
        self._terminal.print_line(
            f"{count(self._messages)} messages, one key, {count(self._updates)} updates of"
            f" {duration(UPDATE_S)} each: {duration(serial_s)} one after the other"
        )
        handling = ("--handler", "http", "--set", f"url={self._service.url}")
        at_once = ("--concurrency", str(self._concurrency))
        run = (*self._what(self._group), *handling, *at_once, "--from", "earliest")
        self._title("How long will it take?")
        self._type("estimate", *run, "--latency", duration(UPDATE_S))
        self._title("Drain it, and stop it with Ctrl-C")
        began_s = time.monotonic()
        self._type("run", *run, "--yes", stops=(signal.SIGINT, STOPPED_AT))
        plan = f"{self._topic}.{self._group}.plan.json"
        resume = ("resume", plan, *handling, *at_once, "--yes")
        self._title("Resume it, and kill it with kill -9")
        self._type(*resume, stops=(signal.SIGKILL, KILLED_AT))
        self._title("Resume it again")
        self._type(*resume)
        took_s = time.monotonic() - began_s
        self._title("Was anything lost?")
        self._type("plan", "verify", plan, "--yes")
        for sentence in self._verified():
            self._terminal.print_line(f"✓ {sentence}")
        self._title(f"It took {duration(took_s)} instead of {duration(serial_s)}")
        self._show_next(*handling, *at_once)

    def _what(self, group: str) -> tuple[str, ...]:
        split = ("--split", "updates", "--key", "payload.id")
        return ("--topic", self._topic, "--group", group, *split)

    def _title(self, text: str) -> None:
        self._terminal.show([])
        self._terminal.show([(text, Tone.STRONG)])

    def _type(self, *words: str, stops: tuple[signal.Signals, float] | None = None) -> None:
        """Show a command and run it. ``stops`` sends it a signal at a share of the updates.

        Raises DrainerError when the command does not end as it should.
        """
        self._terminal.show([("$ ", Tone.PLAIN), (join(["drainer", *words]), Tone.COMMAND)])
        own = {name: text for name, text in os.environ.items() if not name.startswith("DRAINER")}
        # No profile of the user changes these commands.
        own |= {"DRAINER_BOOTSTRAP_SERVER": self._servers, "XDG_CONFIG_HOME": str(self._folder)}
        # A script ignores SIGINT in what it starts with `&`, and the drain would inherit that.
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        child = subprocess.Popen(
            python_module("drainer", *words),
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
            env=own,
            process_group=0,  # Ctrl-C comes only to the demo.
        )
        signal.signal(signal.SIGINT, ours)
        try:
            if stops is not None:
                due = stops[1] * self._updates
                while child.poll() is None and self._service.account(self._topic)["updates"] < due:
                    time.sleep(LOOK_S)
                child.send_signal(stops[0])
            code = child.wait()
        except KeyboardInterrupt:
            child.kill()  # A drain that ended by itself would name a plan that is removed now.
            child.wait()
            self._terminal.console.show_cursor()
            self._terminal.show([])
            raise
        sent = None if stops is None else stops[0]
        if sent is signal.SIGKILL:
            self._terminal.console.show_cursor()
            self._terminal.show([])
            self._terminal.print_line("Killed")
        expected = {None: 0, signal.SIGINT: EXIT_INTERRUPTED}.get(sent, -signal.SIGKILL)
        if code != expected:
            raise DrainerError(f"the demo failed: {words[0]} ended with {code}, not {expected}")

    def _verified(self) -> list[str]:
        """Compare the service's account with the backlog, and return a sentence for each check.

        Raises DrainerError when one of them failed.
        """
        # A document's last update in the backlog has its newest version.
        newest = {
            update["id"]: update["version"]
            for value in values(self._messages)
            for update in orjson.loads(value)["updates"]
        }
        found = self._service.account(self._topic)
        checks = [
            (f"all {count(self._updates)} updates were made", found["updates"] == self._updates),
            (f"all {len(newest):,} documents are up to date", found["versions"] == newest),
            ("no document was updated out of order", found["out_of_order"] == 0),
            ("no document was updated twice at once", found["overlapping"] == 0),
        ]
        for sentence, is_true in checks:
            if not is_true:
                raise DrainerError(f"the demo failed: this is not true: {sentence}")
        repeats = (
            f"{found['repeats']} calls came twice: those in flight at kill -9, and those of about"
            " the last 50ms before it; the service knew them by their ids"
        )
        return [*(sentence for sentence, _ in checks), repeats]

    def _show_next(self, *handling: str) -> None:
        """Print commands to try next. Each can be copied as it is."""
        plan = f"{self._topic}.{self._own_group}.plan.json"
        what = (*self._what(self._own_group), "--from", "earliest")
        self._title("Try next: Kafka and the service keep running")
        for line in (
            f"export DRAINER_BOOTSTRAP_SERVER={self._servers}",
            join(["drainer", "inspect", *what]),
            join(["drainer", "run", *what, *handling]),
            "# in a second terminal; then stop it with Ctrl-C, or kill -9 its pid:",
            "drainer ps",
            join(["drainer", "resume", plan, *handling]),
            join(["drainer", "plan", "history", plan]),
            "# stops Kafka and the service, and removes their data:",
            down_command(self._sandbox),
        ):
            self._terminal.show(
                [("  ", Tone.PLAIN), (line, Tone.PLAIN if line[0] == "#" else Tone.COMMAND)]
            )
