"""Kafka's jars, which PySpark's Ivy fetches once into the user's cache.

The SHA-256 of each jar is checked after the fetch and before each use.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from drainer.errors import SandboxRefused, raised_as
from drainer.host.java import find_java
from drainer.host.process import start_apart

KAFKA_VERSION = "4.2.0"
FETCH_TIMEOUT_S, REPORT_EVERY_S = 900, 4

# Kafka comes with an slf4j without a binding, which logs nothing. PySpark's slf4j and log4j have
# one and are newer. Each may be on the class path only once, so Kafka's own are left out.
_LOG_JARS = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
_LEFT_OUT = ("slf4j-", "log4j-")

# The output of sha256sum for the jars that Ivy fetched from Maven Central. Java runs no other jars.
HASHES = Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256")

_TROUBLE = re.compile(
    r"^.*(?:: not found|NOT FOUND|FAILED|Server access error|IOException).*$", re.MULTILINE
)


def quiet(text: str) -> None:
    """Ignore a line of progress."""


def kafka_jars(
    *, cache: Path | None = None, print_line: Callable[[str], None] = quiet
) -> tuple[Path, ...]:
    """Return Kafka's jars. They are fetched first if they are not in the cache.

    The 45 jars (43 MB, half a minute) are fetched into a folder beside the cache, which is renamed
    once it is complete. If several processes need them, one fetches and the others wait for it.

    Raises SandboxRefused when there is no Java to fetch with, when the network or the disk fails,
    or when a jar is not the one that was published.
    """
    cache = cache or user_cache_path("drainer") / f"kafka-{KAFKA_VERSION}"
    if not (jars := _listed(cache)):
        hint = "Make 150 MB of room there, or name another folder with XDG_CACHE_HOME."
        about = f"can't keep Kafka's jars in {cache.parent}: "
        with raised_as(SandboxRefused, OSError, about=about, hint=hint):
            cache.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(cache.with_name(f"{cache.name}.lock")):
                if not (jars := _listed(cache)):
                    _fetch(cache, print_line)
                    jars = _listed(cache)
    if changed := _changed(jars):
        raise SandboxRefused(
            f"Kafka's jars in {cache} differ from the published ones: {changed}",
            hint="Find out who changed them. To fetch them again, remove the folder.",
        )
    return jars


def classpath(jars: tuple[Path, ...]) -> str:
    """Return the class path for ``java -cp``: Kafka's jars, and PySpark's for logging."""
    folder = pyspark_jars()
    logging = [jar for pattern in _LOG_JARS for jar in sorted(folder.glob(pattern))]
    kafka = [jar for jar in jars if not (logging and jar.name.startswith(_LEFT_OUT))]
    return os.pathsep.join(str(jar) for jar in [*logging, *kafka])


def _hashes() -> dict[str, str]:
    """Return the SHA-256 of each jar by its name."""
    lines = HASHES.read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _listed(cache: Path) -> tuple[Path, ...]:
    """Return the jars in the cache, or no jars if one is missing.

    One may be missing, because systems remove old files from caches.
    """
    jars = tuple(cache / name for name in _hashes())
    return jars if all(jar.is_file() for jar in jars) else ()


def _changed(jars: Iterable[Path]) -> str:
    """Describe the first jar with another SHA-256 than the published one; "" if there is none."""
    hashes = _hashes()
    for jar in jars:
        if (found := sha256_of(jar)) != hashes[jar.name]:
            return f"{jar.name} has the SHA-256 {found} instead of {hashes[jar.name]}"
    return ""


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _fetch(cache: Path, print_line: Callable[[str], None]) -> None:
    java = find_java()
    ivy = max(pyspark_jars().glob("ivy-*.jar"), default=None)
    if ivy is None:  # The package pyspark-client has no jars.
        raise SandboxRefused(
            f"this PySpark has no Ivy in {pyspark_jars()} to fetch Kafka's jars",
            hint="Run `pip install '.[spark]'` in the folder of drainer's source.",
        )
    log = cache.with_name(f"{cache.name}.fetch.log")
    prefix = f"{cache.name}.part-"
    for leftover in cache.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)  # It is from a fetch that was killed.
    with tempfile.TemporaryDirectory(dir=cache.parent, prefix=prefix) as part:
        whole = Path(part) / "jars"
        whole.mkdir()
        command = [
            *(str(java), "-jar", str(ivy)),
            *("-cache", str(Path(part) / "ivy")),
            *("-dependency", "org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
            *("-retrieve", f"{whole}/[artifact]-[revision](-[classifier]).[ext]"),
            *("-confs", "default", "-types", "jar", "bundle"),
        ]
        print_line(f"fetching Kafka {KAFKA_VERSION} into {cache} (once; 43 MB, half a minute)")
        exit_code = _run(command, log, Path(part), print_line)
        jars = _listed(whole)
        if exit_code != 0 or not jars:
            printed = _TROUBLE.findall(log.read_text(encoding="utf-8", errors="replace"))
            trouble = "; ".join(dict.fromkeys(line.strip(": \t") for line in printed[:3]))
            raise SandboxRefused(
                f"can't fetch Kafka's jars: {trouble or 'Ivy failed'}; Ivy's output is in {log}",
                hint="Check the network (JAVA_TOOL_OPTIONS for a proxy) and the disk, then try"
                " again. Or copy the cache folder from another machine.",
            )
        if changed := _changed(jars):
            raise SandboxRefused(
                f"a jar of Kafka {KAFKA_VERSION} differs from the published one: {changed}",
                hint="Check the proxy or mirror for Maven Central. drainer kept nothing.",
            )
        if cache.exists():
            shutil.rmtree(cache)
        whole.rename(cache)
    print_line(f"fetched Kafka {KAFKA_VERSION}: {len(jars)} jars")


def _run(command: list[str], log: Path, folder: Path, print_line: Callable[[str], None]) -> int:
    fetching = start_apart(command, folder, log, die_with_parent=True)
    try:
        for _ in range(FETCH_TIMEOUT_S // REPORT_EVERY_S):
            with suppress(subprocess.TimeoutExpired):
                return fetching.wait(REPORT_EVERY_S)
            there = sum(file.stat().st_size for file in folder.glob("ivy/**/*.jar*"))
            print_line(f"fetching Kafka: {there / 1e6:.0f} MB are there")
    finally:
        fetching.kill()
        fetching.wait()
    raise SandboxRefused(
        f"Kafka's jars did not arrive within {FETCH_TIMEOUT_S} s; Ivy's output is in {log}",
        hint="Check the network, then try again.",
    )


def pyspark_jars() -> Path:
    """Return the folder of PySpark's jars. Raises SandboxRefused without PySpark."""
    # PySpark is not imported, because that would take most of a second.
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SandboxRefused(
            "the sandbox needs PySpark (for Ivy), which is not installed",
            hint="Run `pip install '.[spark]'` in the folder of drainer's source.",
        )
    return Path(spec.submodule_search_locations[0]) / "jars"
