"""Cases of the engine: workers that sleep beside work, memory, and handlers that block the loop."""

from __future__ import annotations

import zlib
from pathlib import Path

from scenarios.trust.case import Stage, case, ensure

HANDLERS = Path(__file__).with_name("handlers_engine.py")
ROUNDS = range(1, 36)  # The numbers of short calls before the eight that are to meet.
# With a buffer of 16 MiB, this includes the client's memory and the interpreter's own.
GROWTH_MIB = 40


@case(
    "all lanes that a barrier lets go start at once",
    before="in 2 of 35 rounds the last of eight started 0.5 s after the first",
)
def lanes_start_at_once(stage: Stage) -> str:
    topic = stage.topic((b"key", b"%d" % count) for count in ROUNDS)
    log = stage.folder / "rounds"
    words = _run(stage, topic, "Rounds", "--set", f"log={log}", "--concurrency", "8")
    stage.drainer(*words)
    late = [float(line) for line in log.read_text().split()]
    ensure(len(late) == len(ROUNDS), f"{len(late)} of {len(ROUNDS)} rounds")
    slow = [seconds for seconds in late if seconds > 0.25]
    ensure(
        not slow, f"in {len(slow)} of {len(late)} rounds the last started {max(late):.2f} s late"
    )
    return f"in each of {len(late)} rounds within {max(late) * 1000:.1f} ms"


@case(
    "messages behind a parked lane leave the memory",
    before="3,000 messages of 150 kB, half of them parked: 235 MiB with a buffer of 16 MiB",
)
def parked_messages_leave_the_memory(stage: Stage) -> str:
    value = bytes(150_000)
    topic = stage.topic(
        (b"bad" if number % 2 else b"%d" % number, value) for number in range(3_000)
    )
    return _grows(stage, topic, "Parks", 5, "--on-failure", "park", "--retries", "0")


@case(
    "messages of 10,000 operations each stay within the buffer",
    before="173 MiB with a buffer of 16 MiB",
)
def large_fan_out_stays_within_the_buffer(stage: Stage) -> str:
    topic = stage.topic((b"key", b"10000") for _ in range(100))
    return _grows(stage, topic, "FansOut", 0)


@case(
    "what split unpacks counts",
    before="300 messages that unpack to 1 MB each: 288 MiB with a buffer of 16 MiB",
)
def unpacked_payloads_count(stage: Stage) -> str:
    value = zlib.compress(bytes(1_000_000))
    topic = stage.topic((b"key", value) for _ in range(300))
    return _grows(stage, topic, "Unpacks", 0, "--concurrency", "4")


@case(
    "sub-keys that are equal and have two texts are refused",
    before="True and 1 are one lane while it drains, and two in the plan",
)
def sub_keys_have_one_text(stage: Stage) -> str:
    topic = stage.topic([(b"key", b"x")])
    words = _run(stage, topic, "TrueAndOne", "--on-failure", "park", "-o", "json")
    text = stage.drainer(*words, code=3).text
    ensure(f"the sub-key True at {topic}/0/0[1]" in text and "bool" in text, text[-2000:])
    return "exit code 3 before a plan exists, with sub-key, type and place"


def _grows(stage: Stage, topic: str, handler: str, code: int, *more: str) -> str:
    """Ensure that a drain with a buffer of 16 MiB takes about that much memory."""
    log = stage.folder / "grown"
    words = _run(stage, topic, handler, "--set", f"log={log}", "--tune", "buffer=16MiB", *more)
    ended = stage.drainer(*words, code=None)
    ensure(ended.code == code, f"exit code {ended.code}: {ended.err[-300:]}")
    grown = int(log.read_text())
    ensure(grown <= GROWTH_MIB, f"{grown} MiB with a buffer of 16 MiB")
    return f"{grown} MiB"


def _run(stage: Stage, topic: str, handler: str, *more: str) -> list[str]:
    return ["--quiet", *stage.run_words(topic, f"{HANDLERS}:{handler}", *more)]
