"""A backlog that is drawn by chance, and a drain of it that is killed and stopped by chance."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from drainer.errors import EXIT_INTERRUPTED
from scenarios.chaos.drain import HANDLER, Backlog, Pace, Process, Spread, until
from scenarios.chaos.nights.account import committed
from scenarios.chaos.stage import KILLED, SLOW, Report, Stage
from scenarios.chaos.trace import Place
from scenarios.fill import fill

PARTITIONS = 3
JUST_NOW_S = 0.2  # This is 50 ms on a machine that does nothing else.
LINE_BYTES = 42  # About the bytes of a line of the trace.
CALL_ENDS = 2
STARTING = 0.2  # This share of the kills comes while the drain is starting.
HARD = 0.8  # This share of the drains that are ended is killed, and the others are stopped.
TRIES = 60
EARLY = -signal.SIGTERM  # The exit code if the signal comes before Python could listen to it.


@dataclass(frozen=True, slots=True)
class Record:
    """A record, with the sub-keys of what it splits into, or None if it can't be split."""

    value: bytes
    sub_keys: Sequence[str] | None
    partition: int
    key: bytes = b"customer-4711"


def record(chance: random.Random, sub_keys: Sequence[str], most: int = 12) -> Record:
    """Draw a record of up to so many sub-messages, and sometimes of none."""
    chosen = [chance.choice(sub_keys) for _ in range(chance.randrange(most))]
    value = orjson.dumps({"documents": [{"id": each} for each in chosen]})
    return Record(value, chosen, chance.randrange(PARTITIONS))


def keys(chance: random.Random) -> list[str]:
    """Draw the sub-keys of a backlog: few or many of them, and sometimes one that is much hotter
    than the others."""
    found = [f"doc-{number}" for number in range(chance.choice([5, 60, 900]))]
    return found + ["hot"] * (len(found) // 2 * chance.randrange(2))


class Lot(Backlog):
    """A backlog that its chapter writes, and the words of its drains.

    ``expected`` has the sub-keys of everything that can be split. ``words`` are given to each
    command, and ``words_of_run`` to the first one.
    """

    expected: dict[Place, str]
    ends: dict[int, int]  # The ends of the partitions.
    progress: Callable[[], int]  # Returns how often a call has begun or ended.
    words: tuple[str, ...] = ()
    words_of_run: tuple[str, ...] = ("--from", "earliest")
    handler_words: tuple[str, ...] = ()

    @classmethod
    @contextmanager
    def of(cls, stage: Stage, pace: Pace = SLOW) -> Iterator[Lot]:
        with cls.on(stage.settings, stage.folder, 0, pace, Spread(PARTITIONS)) as lot:
            lot.expected, lot.ends = {}, {}
            lot.progress = lambda: lot.traced_bytes // LINE_BYTES
            lot.handled_by("Traced")
            lot.words = ("--set", f"trace={lot.trace}", "--set", f"latency_ms={pace.latency_ms}")
            yield lot

    def handled_by(self, name: str) -> None:
        """Let another class of ``handler.py`` handle the backlog."""
        self.handler_words = ("--handler", f"{HANDLER}:{name}")

    def write(self, records: Sequence[Record]) -> list[Place]:
        """Produce the records, and expect them. Return the places of those that can't be split."""
        fill(
            self.settings, self.topic, ((each.key, each.value, each.partition) for each in records)
        )
        offsets, bad = [0] * PARTITIONS, []
        for each in records:
            place = each.partition, offsets[each.partition]
            offsets[each.partition] += 1
            if each.sub_keys is None:
                bad.append((*place, 0))
            for index, sub_key in enumerate(each.sub_keys or ()):
                self.expected[*place, index] = sub_key
        self.ends = dict(enumerate(offsets))
        return bad

    def starts(self, *more: str) -> Process:
        """Start the drain, or resume the one that has a plan."""
        words = ["--concurrency", str(self.pace.concurrency), "--yes"]
        words += [*self.words, *more]
        if self.plan.exists():
            return self.command("--quiet", "resume", str(self.plan), *self.handler_words, *words)
        what = ["--topic", self.topic, "--group", self.group, "--plan", str(self.plan)]
        return self.command(
            "--quiet", "run", *what, *self.words_of_run, *self.handler_words, *words
        )

    def is_amid(self, stage: Stage, process: Process, kills: int) -> bool:
        """Wait for a random moment of a drain that is to be killed so often. Return False if the
        drain has ended."""
        chance, before = stage.chance, self.progress()
        if chance.random() < STARTING:
            return not process.ends_within(chance.uniform(0, 1.5))
        calls = chance.randrange(1, len(self.expected) * CALL_ENDS // (kills + 1) + 2)
        until(lambda: self.progress() >= before + calls, lambda: not process.running)
        return not process.ends_within(chance.uniform(0, 0.2))

    def takes_its_course(
        self,
        stage: Stage,
        report: Report,
        *ends: int,
        amid: Callable[[Process], object] = lambda _: None,
        after: Callable[[], object] = lambda: None,
        also: tuple[int, ...] = (),
    ) -> int:
        """Drain to the end, with kills and stops by chance. Return the last exit code, which is one
        of ``ends``.

        ``amid`` is called with each drain that runs, and ``after`` once it has ended. ``also`` are
        exit codes after which the drain is resumed, such as that of a refusal while something is
        away.
        """
        report.sub_messages += len(self.expected)
        report.remarks.append(f"{len(self.expected):,} sub-messages")
        allowed = (*ends, *also)
        kills = stage.times(3, 6)
        for _ in range(TRIES):
            process = self.starts()
            if kills and self.is_amid(stage, process, kills):
                amid(process)
                hard = stage.chance.random() < HARD
                process.send(signal.SIGKILL if hard else signal.SIGTERM)
                by_signal = (KILLED,) if hard else (EXIT_INTERRUPTED, EARLY)
                code = report.ends(process, *by_signal, *allowed)
                kills, report.times = kills - 1, report.times + 1
            else:
                code = report.ends(process, *allowed)
            after()
            if code in ends:
                return code
            if code not in (KILLED, EARLY, EXIT_INTERRUPTED, *also):
                break
        report.ensure(False, f"not done, exit {code}")
        return code

    def most_repeated(self, report: Report) -> int:
        """The most that may be done again: for each kill, the calls in flight and what had just
        finished."""
        per_s = self.pace.concurrency * 1000 / self.pace.latency_ms
        return int(report.times * (self.pace.concurrency + per_s * JUST_NOW_S))

    def check_group(self, report: Report) -> None:
        """Ensure that the group is at the end, as a consumer sees it."""
        found = committed(self.settings, self.group, self.topic, PARTITIONS)
        wanted = {number: end for number, end in self.ends.items() if end}
        at = {number: found.get(number) for number in wanted}
        report.ensure(at == wanted, f"the group is at {at}, not {wanted}")
