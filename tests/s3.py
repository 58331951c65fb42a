"""A real S3-compatible server on this machine: versitygw over a folder, with its access log."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drainer.sandbox.ports import HOST, free_port
from golang import built, cached
from needs import await_answer

BUCKET = "drains"
LOGIN = {"AWS_ACCESS_KEY_ID": "drainer", "AWS_SECRET_ACCESS_KEY": "drainers-secret"}
MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
START_S = 20.0


def versitygw(build: bool) -> str | None:
    """Path of the program. If it is nowhere, it is built, or it is None."""
    there = shutil.which("versitygw") or shutil.which(cached(MODULE, VERSION))
    return there or (built(MODULE, VERSION) if build else None)


@dataclass(frozen=True, slots=True)
class S3:
    """A server that runs. Its clients have ``LOGIN`` in their environment."""

    endpoint: str
    log: Path

    def uri(self, path: str) -> str:
        return f"s3://{BUCKET}/{path}?region=us-east-1&endpoint={self.endpoint}"

    def requests(self) -> list[str]:
        """A line each, with operation and name, as in ``s3_PutObject a/b/x``."""
        return [line for line in self.log.read_text().splitlines() if " s3_" in line]


@contextmanager
def running(program: str, folder: Path) -> Iterator[S3]:
    """A server with an empty bucket; it ends with the block."""
    (folder / "data" / BUCKET).mkdir(parents=True)
    address = f"{HOST}:{free_port()}"
    log = folder / "access.log"
    keys = ["--access", LOGIN["AWS_ACCESS_KEY_ID"], "--secret", LOGIN["AWS_SECRET_ACCESS_KEY"]]
    options = ["--port", address, *keys, "--quiet", "--access-log", str(log), "--health", "/health"]
    with (folder / "output").open("w") as output:
        server = subprocess.Popen(
            [program, *options, "posix", str(folder / "data")],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HOME": str(folder)},
        )
    try:
        await_answer(f"http://{address}/health", server, START_S)
        yield S3(f"http://{address}", log)
    finally:
        server.terminate()
        server.wait()
