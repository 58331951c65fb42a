"""Outages and bad messages: what is given up, and what is said of it."""

from __future__ import annotations

from typing import Any

from scenarios.trust.case import Stage, case, ensure

AWAY_S = 10
HANDLER = """
import asyncio, time
import drainer

BEGUN = []

async def handle(sub):
    BEGUN.append(time.monotonic())
    await asyncio.sleep(0.01)
    if AWAY_S and 0.5 < time.monotonic() - BEGUN[0] < 0.5 + AWAY_S:
        raise ConnectionError("refused")
    if sub.payload == b"old":
        raise drainer.Skip("too old")
    if sub.payload == b"bad":
        raise ValueError("no good")
"""


def drained(stage: Stage, values: list[tuple[bytes, bytes]], away_s: int, *more: str) -> Any:
    """The answer of a drain of these keys and values, its downstream away soon after the first."""
    handler = stage.file("handler.py", HANDLER.replace("AWAY_S", str(away_s)))
    return stage.drain(stage.topic(values), handler, "-o", "json", *more, code=None).answer


def survived(stage: Stage, keys: int, *more: str) -> str:
    values = [(b"k%d" % (n % keys), b"") for n in range(200 * min(keys, 8))]
    answer = drained(stage, values, AWAY_S, "-c", "8", *more)
    counts = answer["sub_messages"]
    told = f"exit {answer['exit_code']}, {counts}, {answer['outages']} outages"
    ensure(answer["exit_code"] == 0 and counts["done"] == len(values), told)
    return f"all {len(values)} done, none given up, {answer['elapsed_s']:.0f} s"


@case(
    8,
    "20 keys, the downstream is away for 10 s, --on-failure dead-letter",
    before="31 dead letters",
)
def an_outage_of_20_keys(stage: Stage) -> str:
    return survived(stage, 20, "--on-failure", "dead-letter")


@case(
    8,
    "one hot key, the downstream is away for 10 s, --on-failure dead-letter",
    before="9 dead letters, and the breaker never opened",
)
def an_outage_of_one_hot_key(stage: Stage) -> str:
    return survived(stage, 1, "--on-failure", "dead-letter")


@case(
    8,
    "one hot key, the downstream is away for 10 s, default settings",
    before="halted after 0.8 s",
)
def an_outage_by_default(stage: Stage) -> str:
    return survived(stage, 1)


@case(
    13,
    "--on-failure skip with failures and Skip among them",
    before="exit 0, 29 skipped, of which 19 were failures",
)
def failures_are_no_skips(stage: Stage) -> str:
    values = [(b"k%d" % n, b"bad" if n < 19 else b"old" if n < 29 else b"") for n in range(200)]
    answer = drained(stage, values, 0, "--on-failure", "skip", "--retries", "0")
    counts = answer["sub_messages"]
    told = f"exit {answer['exit_code']}, {counts}, {answer['skipped_for']}"
    ensure((counts["failed"], counts["skipped"], answer["exit_code"]) == (19, 10, 6), told)
    ensure(answer["skipped_for"] == {"too old": 10}, told)
    return "exit 6, 19 failed, 10 skipped for 'too old'"


@case(
    13,
    "a lane is parked: its key and its first pending place",
    before="summary and plan named neither, only '1 lane'",
)
def parked_lanes_are_named(stage: Stage) -> str:
    values = [(b"k%d" % (n % 10), b"bad" if n == 13 else b"") for n in range(100)]
    answer = drained(stage, values, 0, "--on-failure", "park", "--retries", "0")
    shown = stage.drainer("plan", "show", answer["plan"]).out
    named = [(lane["key"], lane["place"].split("/", 1)[1]) for lane in answer["parked_first"]]
    told = f"exit {answer['exit_code']}, {answer['parked_lanes']} parked, named {named}"
    ensure(answer["exit_code"] == 5 and named == [("b'k3'", "0/13[0]")], told)
    ensure("b'k3' at " in shown and "/0/13[0]: ValueError: no good" in shown, shown)
    tried = stage.drainer("resume", answer["plan"], "--yes", "-o", "json", code=5).answer
    ensure(tried["failures"], f"a resume did not try it: {tried}")
    return "summary and plan: b'k3' at 0/13[0], ValueError: no good; a resume tries it again"
