"""The Java that runs Kafka and its fetch: the one PySpark would use too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from drainer.errors import SandboxRefused

OLDEST_RELEASE = 17  # Kafka 4's brokers are compiled for it
ASK_TIMEOUT_S = 30

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HINT = f"install a JDK of release {OLDEST_RELEASE} or later, and put it on PATH or in JAVA_HOME"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was asked for its release, and answered."""

    path: Path
    release: int


def find_java() -> Java:
    """Find Java in ``JAVA_HOME``, else on ``PATH``.

    Raises:
        SandboxRefused: when there is none, when it doesn't run, or when it is older than 17.
    """
    path = _in_java_home() or shutil.which("java")
    if path is None:
        raise SandboxRefused("the sandbox needs Java, and none was found", hint=_HINT)
    release = _release(Path(path))
    if release < OLDEST_RELEASE:
        raise SandboxRefused(
            f"the sandbox needs Java {OLDEST_RELEASE} or later, and {path} is Java {release}",
            hint=_HINT,
        )
    return Java(path=Path(path), release=release)


def _in_java_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else None


def _release(path: Path) -> int:
    try:
        answer = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxRefused(f"{path} does not run: {error}", hint=_HINT) from error
    version = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or version is None:
        # macOS ships a `java` that only says where to get one.
        said = (answer.stderr + answer.stdout).strip() or f"exit code {answer.returncode}"
        raise SandboxRefused(f"{path} is no working Java: {said}", hint=_HINT)
    major, minor = version.groups()
    # Up to Java 8 the release was the second number: 1.8.
    return int(minor) if major == "1" and minor else int(major)
