"""A schema registry as a child process: Apicurio's, in memory, with Confluent's interface."""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from platformdirs import user_cache_path

from drainer.errors import SandboxRefused, raised_as
from drainer.host.java import find_java
from drainer.host.process import ProcessMark, start_apart
from drainer.sandbox.jars import sha256_of
from drainer.sandbox.ports import HOST, free_port

VERSION = "3.0.9"
NAME = f"apicurio-registry-app-{VERSION}"
ARCHIVE = (
    f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/{NAME}-all.tar.gz"
)
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
FOLDER, LOG = "registry", "registry.log"
START_TIMEOUT_S, FETCH_S, PROBE_EVERY_S, ANSWER_S = 180.0, 60.0, 0.2, 5.0


@dataclass(frozen=True, slots=True)
class RegistryState:
    """A registry that was started. Its schemas are in memory, and end with its process."""

    port: int
    process: ProcessMark

    @property
    def url(self) -> str:
        """The address of Confluent's interface."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def is_of(self, folder: Path) -> bool:
        """Return whether the process was started from this folder, or has ended."""
        return not self.process.alive() or str(folder / FOLDER) in self.process.command()

    def wait_ready(self, log: Path) -> None:
        """Wait until the registry answers. Raises SandboxRefused if it ends or takes too long."""
        until_s = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(OSError), urlopen(f"{self.url}/subjects", timeout=ANSWER_S):
                return
            if not self.process.alive() or time.monotonic() > until_s:
                raise SandboxRefused("the schema registry did not start", hint=f"See {log}.")
            time.sleep(PROBE_EVERY_S)


def launch(folder: Path, die_with_parent: bool, print_line: Callable[[str], None]) -> RegistryState:
    """Start a registry in a sandbox's folder, without waiting for an answer.

    Raises SandboxRefused when it can't be fetched, or when its SHA-256 is not the published one.
    """
    home, port = folder / FOLDER, free_port()
    about = f"can't start a schema registry in {folder}: "
    hint = "Check the network (HTTPS_PROXY for a proxy) and the disk, which takes 250 MB."
    with raised_as(SandboxRefused, OSError, tarfile.TarError, about=about, hint=hint):
        archive = _archive(print_line)
        shutil.rmtree(home, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
        command = [
            *(str(find_java()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}"),
            *("-Dapicurio.storage.kind=sql", "-Dapicurio.storage.sql.kind=h2"),
            *(f"-Djava.io.tmpdir={home}", "-jar", str(home / f"{NAME}-runner.jar")),
        ]
        process = start_apart(command, home, folder / LOG, die_with_parent=die_with_parent)
    mark = ProcessMark.of(process.pid)
    if mark is None:
        raise SandboxRefused("the schema registry ended at once", hint=f"See {folder / LOG}.")
    return RegistryState(port, mark)


def _archive(print_line: Callable[[str], None]) -> Path:
    """Return the archive in the user's cache. Its SHA-256 is checked before each use."""
    cached = user_cache_path("drainer", ensure_exists=True) / f"{NAME}-all.tar.gz"
    if not cached.exists():
        print_line(f"fetching Apicurio Registry {VERSION} into {cached} (once; 109 MB)")
        part = cached.with_name(f"{cached.name}.part")  # Only the process with the lock writes it.
        with urlopen(ARCHIVE, timeout=FETCH_S) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file)
        part.rename(cached)
    if (found := sha256_of(cached)) != SHA256:
        raise SandboxRefused(
            f"{cached} has the SHA-256 {found} instead of {SHA256}",
            hint="Check the proxy or mirror, remove the file, and try again.",
        )
    return cached
