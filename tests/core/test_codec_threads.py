"""Records that several threads read."""

from __future__ import annotations

import subprocess
import sys

FIRST_READERS = """
import sys, threading
from dataclasses import make_dataclass
from drainer.model.codec import convert

sys.setswitchinterval(1e-6)
for number in range(40):
    inner = make_dataclass("Inner", [(f"i{n}", int) for n in range(20)], frozen=True)
    kind = make_dataclass("Outer", [(f"f{n}", "int | None") for n in range(20)] + [("x", inner)])
    body = {f"f{n}": n for n in range(20)} | {"x": {f"i{n}": n for n in range(20)}}
    ready = threading.Barrier(8)

    def read():
        ready.wait()
        assert convert(body, kind).f3 == 3

    readers = [threading.Thread(target=read) for _ in range(8)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
"""


def test_threads_that_are_the_first_to_read_a_record_do_so_in_turn() -> None:
    """msgspec ends the process by a signal otherwise."""
    subprocess.run([sys.executable, "-c", FIRST_READERS], check=True)
