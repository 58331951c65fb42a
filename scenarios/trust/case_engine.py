"""Cases of the engine: workers that sleep beside work, memory, and handlers that block the loop."""

from __future__ import annotations

import subprocess
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from drainer.demo.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from scenarios.trust.case import TRY_S, Stage, case, insist

HANDLERS = Path(__file__).with_name("handlers_engine.py")
ROUNDS = range(1, 36)  # short ones before the eight that are to meet
BLOCKING = 1_000  # sub-messages of 10 ms that block
REPEATED_MOST = 30  # 50 ms of work, and what a busy machine makes of it
GROWTH_MIB = 40  # with a buffer of 16 MiB, the client's and the interpreter's own included


@case(
    2,
    "all lanes that a barrier lets go start at once",
    before="in 2 of 35 rounds the last of eight started 0.5 s after the first",
)
def lanes_start_at_once(stage: Stage) -> str:
    topic = _filled(stage, ((b"key", b"%d" % count) for count in ROUNDS))
    log = stage.folder / "rounds"
    words = _run(stage, topic, "Rounds", "--set", f"log={log}", "--concurrency", "8")
    ended = stage.drainer(*words)
    insist(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-300:]}")
    late = [float(line) for line in log.read_text().split()]
    insist(len(late) == len(ROUNDS), f"{len(late)} of {len(ROUNDS)} rounds")
    slow = [seconds for seconds in late if seconds > 0.25]
    insist(
        not slow, f"in {len(slow)} of {len(late)} rounds the last started {max(late):.2f} s late"
    )
    return f"in each of {len(late)} rounds within {max(late) * 1000:.1f} ms"


@case(
    3,
    "messages behind a parked lane leave the memory",
    before="3,000 messages of 150 kB, half of them parked: 235 MiB with --buffer 16MiB",
)
def parked_messages_leave_the_memory(stage: Stage) -> str:
    value = bytes(150_000)
    topic = _filled(
        stage, ((b"bad" if number % 2 else b"%d" % number, value) for number in range(3_000))
    )
    return _grows(stage, topic, "Parks", 5, "--on-failure", "park", "--retries", "0")


@case(
    3,
    "messages of 10,000 operations each stay within the buffer",
    before="173 MiB with --buffer 16MiB",
)
def large_fan_out_stays_within_the_buffer(stage: Stage) -> str:
    topic = _filled(stage, ((b"key", b"10000") for _ in range(100)))
    return _grows(stage, topic, "FansOut", 0)


@case(
    3,
    "what split unpacks counts",
    before="300 messages that unpack to 1 MB each: 288 MiB with --buffer 16MiB",
)
def unpacked_payloads_count(stage: Stage) -> str:
    value = zlib.compress(bytes(1_000_000))
    topic = _filled(stage, ((b"key", value) for _ in range(300)))
    return _grows(stage, topic, "Unpacks", 0, "--concurrency", "4")


@case(
    14,
    "an async handler that blocks is named, and a kill repeats next to nothing",
    before="not noticed; 143 of 603 were repeated",
)
def blocking_handlers_are_named(stage: Stage) -> str:
    topic = _filled(stage, ((b"%d" % number, b"x") for number in range(BLOCKING)))
    log = stage.folder / "done"
    words = _run(stage, topic, "Blocks", "--set", f"log={log}", "--concurrency", "200")
    with subprocess.Popen([*stage.program, *words], cwd=stage.folder) as killed:
        until_s = time.monotonic() + TRY_S
        while not log.exists() or log.read_bytes().count(b"\n") < BLOCKING // 2:
            insist(killed.poll() is None and time.monotonic() < until_s, "it did not get so far")
            time.sleep(0.01)
        killed.kill()
    before = log.read_text().split()
    plan = next(stage.folder.glob("*.plan.json"))
    ended = stage.drainer("resume", str(plan), "--yes", "--quiet", "--set", f"log={log}")
    insist(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-300:]}")
    done = log.read_text().split()
    insist(len(set(done)) == BLOCKING, f"{len(set(done))} of {BLOCKING} were handled")
    repeated = len(done) - BLOCKING
    insist(repeated <= REPEATED_MOST, f"{repeated} of {len(before)} were repeated")
    line = _line_of("time.sleep(0.01)")
    insist(f"{HANDLERS}:{line}" in ended.stderr, f"line {line} is not named: {ended.stderr[-300:]}")
    return f"named, with line {line}; {repeated} of {len(before)} were repeated"


@case(
    6,
    "sub-keys that are equal and have two texts are refused",
    before="True and 1 are one lane while it drains, and two in the plan",
)
def sub_keys_have_one_text(stage: Stage) -> str:
    topic = _filled(stage, [(b"key", b"x")])
    ended = stage.drainer(*_run(stage, topic, "TrueAndOne", "--on-failure", "park", "-o", "json"))
    said = ended.stdout + ended.stderr
    named = f"the sub-key True at {topic}/0/0[1]" in said and "bool" in said
    insist(ended.returncode == 5 and named, f"exit code {ended.returncode}: {said[-2000:]}")
    return "exit code 5, with sub-key, type, topic, partition, offset and index"


@case(
    6,
    "an error whose text can't be had is a failure like any other",
    before="exit code 1: this is a bug in drainer",
)
def errors_without_a_text_fail_like_others(stage: Stage) -> str:
    topic = _filled(stage, [(b"key", b"x")])
    more = ("--on-failure", "skip", "--retries", "0")
    ended = stage.drainer(*_run(stage, topic, "FailsMutely", *more))
    insist(ended.returncode in (0, 6), f"exit code {ended.returncode}: {ended.stderr[-300:]}")
    return "skipped, as it was asked for"


def _line_of(words: str) -> int:
    lines = HANDLERS.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


def _grows(stage: Stage, topic: str, handler: str, code: int, *more: str) -> str:
    """How much memory a drain with a buffer of 16 MiB takes, which must be about that."""
    log = stage.folder / "grown"
    words = _run(stage, topic, handler, "--set", f"log={log}", "--buffer", "16MiB", *more)
    ended = stage.drainer(*words)
    insist(ended.returncode == code, f"exit code {ended.returncode}: {ended.stderr[-300:]}")
    grown = int(log.read_text())
    insist(grown <= GROWTH_MIB, f"{grown} MiB with --buffer 16MiB")
    return f"{grown} MiB"


def _filled(stage: Stage, records: Iterable[tuple[bytes, bytes]]) -> str:
    topic = stage.name()
    settings = ClientSettings.load(stage.bootstrap)
    create_topic(settings, topic)
    fill(settings, topic, ((key, value, 0) for key, value in records))
    return topic


def _run(stage: Stage, topic: str, handler: str, *more: str) -> tuple[str, ...]:
    return (
        *("run", "--topic", topic, "--group", topic, "-b", stage.bootstrap),
        *("--from", "earliest", "--handler", f"{HANDLERS}:{handler}", "--yes", "--quiet", *more),
    )
