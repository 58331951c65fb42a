"""Writes what this drainer writes: ``DRAINER_WRITE_FORMATS=0.1 pytest tests/formats -n 0``."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
from pathlib import Path

import orjson
import pytest

from command.process import Command
from command.test_metrics import Scrape
from core.limit_samples import measured
from drainer.letters.reading import read_letters
from drainer.limits.file import LimitsFile
from formats.golden import (
    DEAD,
    FOLDER,
    HOME,
    PARTITIONS,
    PROCESS,
    SPARK,
    STATE,
    VALUES,
    anonymous,
    state_of,
)
from store.plans import signed

RELEASE = os.environ.get("DRAINER_WRITE_FORMATS", "")
ON_SPARK = ("--engine", "spark", "--master", "local[2]", "--spark-conf", "drainer.tasks=2")


@pytest.mark.skipif(not RELEASE, reason="the formats are to be written only on request")
def test_write(command: Command) -> None:
    to = FOLDER / RELEASE
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    topic = command.topic(VALUES, partitions=PARTITIONS)
    more = (*DEAD, "--concurrency", "4")
    for name, engine in ((PROCESS, ()), (SPARK, ON_SPARK)):
        plan = command.folder / name
        words = [*more, *engine, "--group", name, "--plan", str(plan)]
        words += ["-X", "session.timeout.ms=6000"]
        command.record.path.unlink(missing_ok=True)
        command.kill_amid(topic, *words, count=120, bad="bad", pause_ms=40)
        body = orjson.loads(anonymous(plan.read_text(), command))
        plan.write_bytes(signed(body) + b"\n")
        for path in command.folder.glob(f"{name}*"):
            if path.is_file():
                shutil.copy(path, to / path.name)
        if engine:
            packed = dict(state_of(plan, command))
            (to / STATE).write_text(json.dumps(packed, indent=1, sort_keys=True) + "\n")

    served = ("--metrics", "0", "--tune", "metrics-linger=1h", "-o", "json", "--group", "last")
    running = command.begin(topic, *more, *served, "--plan", "last.json", bad="bad")
    running.prints("metrics stay up for 1h")
    (to / "metrics.txt").write_text(Scrape(running).text)
    running.signal(signal.SIGTERM)
    answer = running.ends(6)
    (to / "summary.json").write_text(anonymous(answer.out, command))

    dead = answer.answer["dead_letter_topic"]
    words = ["redrive", "-t", dead, "-b", command.bootstrap, "-H", f"{command.handlers}:OnTheLoop"]
    command(*words, "--yes", *command.options())
    found = [
        {
            "key": _text(each.key, command.home),
            "value": _text(each.value, command.home),
            "timestamp": each.timestamp,
            "headers": [(name, _text(value, command.home)) for name, value in each.headers],
        }
        for each in read_letters(command.cluster, dead)
    ]
    (to / "letters.json").write_text(json.dumps(found, indent=1) + "\n")
    LimitsFile(to / "limits.json").write(measured())


def _text(data: bytes | None, home: Path) -> str | None:
    if data is None:
        return None
    return base64.b64encode(data.replace(os.fsencode(home), HOME.encode())).decode()
