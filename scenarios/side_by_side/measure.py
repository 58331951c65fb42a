"""Runs ``drainer run`` as a user does, and reads its summary and its peak memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import orjson

from drainer.engine.loop import event_loop

HANDLERS = Path(__file__).with_name("handlers.py")
DRAINER = ("-m", "drainer")
TIMED_JOURNAL = (str(Path(__file__).with_name("timed_journal.py")),)
WITHOUT_JOURNAL = (str(Path(__file__).with_name("without_journal.py")),)
WITHOUT_PLAN = (str(Path(__file__).with_name("without_plan.py")),)


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run: sub-messages per second while draining, its seconds, and its peak
    memory in MiB.

    ``cpu_s`` is that of the whole process, its start included. ``stderr`` is what it printed there.
    """

    rate: float
    elapsed_s: float
    sub_messages: int
    peak_mib: float
    cpu_s: float
    stderr: str


def bare_loop(concurrency: int, latency_ms: int, seconds: float = 5.0) -> float:
    """Return the sleeps per second of an event loop that does nothing else, which no drain can beat
    here."""

    async def sleep_on() -> int:
        slept = 0
        while monotonic() < end:
            await asyncio.sleep(latency_ms / 1000)
            slept += 1
        return slept

    async def together() -> int:
        return sum(await asyncio.gather(*(sleep_on() for _ in range(concurrency))))

    begun = monotonic()
    end = begun + seconds
    with event_loop() as loop:
        slept = loop.run_until_complete(together())
    return slept / (monotonic() - begun)


def measure(
    bootstrap: str,
    topic: str,
    group: str,
    handler: str,
    *,
    latency_ms: int,
    concurrency: int,
    options: tuple[str, ...] = (),
    program: tuple[str, ...] = DRAINER,
) -> Measured:
    """Drain the topic in a process of its own.

    ``program`` is what Python runs, such as ``-m drainer``.

    Raises RuntimeError with what the command printed if it did not finish all of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, *program, "run"),
            *("--topic", topic, "--group", group, "-b", bootstrap, "--from", "earliest"),
            *("--handler", f"{HANDLERS}:{handler}", "--set", f"latency_ms={latency_ms}"),
            *("--concurrency", str(concurrency)),
            *("--plan", str(Path(folder) / "plan.json"), "--yes", "-o", "json"),
            *options,
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "DRAINER_QUIET": "1"},
        )
        out, err = process.stdout, process.stderr
        assert out is not None
        assert err is not None
        answer, words = out.read(), err.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.close()
        err.close()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\nexit {process.returncode}\n{words.decode()}")
    summary = orjson.loads(answer)
    return Measured(
        rate=summary["rate_average"],
        elapsed_s=summary["elapsed_s"],
        sub_messages=summary["sub_messages"]["done"],
        peak_mib=usage.ru_maxrss / 1024,
        cpu_s=usage.ru_utime + usage.ru_stime,
        stderr=words.decode(),
    )
