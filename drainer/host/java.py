"""Finds the Java that runs Kafka. It is the one that PySpark would use, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from drainer.errors import SandboxRefused, raised_as

OLDEST_RELEASE = 17  # The brokers of Kafka 4 are compiled for it.
TIMEOUT_S = 30

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # Release 8 called itself 1.8.
_HINT = f"Install a JDK of release {OLDEST_RELEASE} or later, and put it on PATH or in JAVA_HOME."


def find_java(user: str = "the sandbox") -> Path:
    """Find Java in ``JAVA_HOME``, or else on ``PATH``. Errors say that ``user`` needs it.

    Raises SandboxRefused when there is none, when it doesn't run, or when it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which("java", path=str(Path(home) / "bin"))) or shutil.which("java")
    if not found:
        raise SandboxRefused(f"{user} needs Java, but there is none", hint=_HINT)
    _ensure_works(found, user)
    return Path(found)


@cache  # A command looks more than once, and each look starts a JVM.
def _ensure_works(found: str, user: str) -> None:
    about = f"{found} does not run: "
    with raised_as(SandboxRefused, OSError, subprocess.TimeoutExpired, about=about, hint=_HINT):
        answer = subprocess.run(
            [found, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    output = (answer.stderr + answer.stdout).strip()
    version = _VERSION.search(output)
    if answer.returncode != 0 or version is None:
        # macOS ships a `java` that only prints where to get one.
        raise SandboxRefused(f"{found} is not a working Java: {output}", hint=_HINT)
    if int(version[1]) < OLDEST_RELEASE:
        raise SandboxRefused(
            f"{user} needs Java {OLDEST_RELEASE} or later, but {found} is Java {version[1]}",
            hint=_HINT,
        )
