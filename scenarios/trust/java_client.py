"""Commits as other clients write and read them, by Kafka's own Java client."""

from __future__ import annotations

import os
import random
import string
import subprocess
from collections.abc import Sequence
from pathlib import Path

from drainer.host.java import find_java
from drainer.sandbox.jars import classpath, kafka_jars

SOURCE = Path(__file__).with_name("JavaClient.java")
JAVA_S = 60.0
LENGTHS = (1, 7, 8, 24, 40, 300, 1300)  # Lengths of metadata, in characters.


def texts(count: int, seed: int = 1) -> list[str]:
    """Return metadata of all lengths that a broker takes, of characters of one to three bytes."""
    draw = random.Random(seed)
    letters = string.ascii_letters + "é€漢"
    return ["".join(draw.choices(letters, k=draw.choice(LENGTHS))) for _ in range(count)]


def commit(
    bootstrap: str, group: str, topic: str, offsets: Sequence[int], metadata: Sequence[str]
) -> None:
    """Commit an offset and its metadata for the partitions from 0 on."""
    pairs = zip(map(str, offsets), metadata, strict=True)
    _run(bootstrap, "commit", group, topic, *(word for pair in pairs for word in pair))


def read(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, tuple[int, str]]:
    """Return the committed offset and its metadata by partition, for those that have one."""
    printed = _run(bootstrap, "read", group, topic, str(partitions))
    rows = (line.split("\t", 2) for line in printed.split("\n") if line)
    return {int(number): (int(offset), metadata) for number, offset, metadata in rows}


def _run(*words: str) -> str:
    jars = classpath(kafka_jars())
    printed = subprocess.run(
        [find_java(), "-XX:TieredStopAtLevel=1", "-cp", jars, str(SOURCE), *words],
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=JAVA_S,
        check=False,
    )
    if printed.returncode:
        raise RuntimeError(f"the Java client failed: {printed.stderr[-1000:]}")
    return printed.stdout
