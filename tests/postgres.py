"""A real PostgreSQL, for tests: Debian's, on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from needs import missing
from privileges import UNPRIVILEGED

PROGRAMS = Path("/usr/lib/postgresql")  # of Debian, by version
INSTALL = "apt-get install -y postgresql"
WAIT_S = "60"


@contextmanager
def postgres() -> Iterator[str]:
    """Run one, and give its address."""
    found = sorted(PROGRAMS.glob("*/bin/initdb"))
    if not found:
        missing(f"PostgreSQL is not installed (hint: {INSTALL})")
    programs = found[-1].parent
    folder = Path(mkdtemp(prefix="pg-", dir="/tmp"))  # sockets have short names
    user = None if os.geteuid() else UNPRIVILEGED  # root may not run it
    if user is not None:
        os.chown(folder, user, -1)

    def call(*words: str) -> None:
        log = folder / "log"
        ended = subprocess.run(
            [programs / words[0], "-D", folder / "data", *words[1:]],
            user=user,
            cwd=folder,
            stdout=subprocess.PIPE if words[0] == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = ended.stdout or (log.read_text() if log.exists() else "")
        assert ended.returncode == 0, f"{words[0]} failed: {output}"

    control = ("pg_ctl", "-w", "-t", WAIT_S)
    options = f"-c listen_addresses= -c fsync=off -k {folder}"
    try:
        call("initdb", "-U", "postgres", "-A", "trust", "-N")
        call(*control, "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
