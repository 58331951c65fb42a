"""HDFS on this machine, from jars that are fetched once into the user's cache."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drainer.host.java import find_java
from drainer.host.process import bound_to_parent
from letters.libraries import FAST_JVM, jars

# WebHDFS does not work in the jar of Hadoop 3.4, whose classes have other names than their
# framework looks for.
HADOOP = "3.5.0"
PROGRAM = Path(__file__).with_name("Hdfs.java")


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run HDFS with one data node, and provide the HTTP address of its name node."""
    library = jars("org.apache.hadoop", "hadoop-client-minicluster", HADOOP)
    command = [find_java(), *FAST_JVM, "-cp", f"{library}/*", PROGRAM, folder]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            bound_to_parent(list(map(str, command))), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address, (folder / "log").read_text()
            yield address
        finally:
            server.kill()
            server.wait(30)
