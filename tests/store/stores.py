"""Places for a drain's state: a folder, and what stands for an object store."""

from __future__ import annotations

import threading
from pathlib import Path

from obstore.store import LocalStore

from builders import counts, progress_at
from drainer.errors import PlanNotWritten, StateLost
from drainer.model.progress import Partial, Progress
from drainer.model.ranges import Range
from drainer.spark.state.folder import Folder
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.state import DriverControl, State
from drainer.store.bucket import Bucket
from drainer.store.objects import Objects

TEST_PATH = ":".join(map(str, Path(__file__).parents[:2]))  # for processes of a test
DRAIN = "20260101-180000-abcdef"
AT_ONCE = LeaseTimes(0, 0, 0, 0, 0, 0)  # without anything to wait for


def driven(state: State, epoch: int = 1) -> State:
    """A state whose driver, of this epoch, has requested nothing yet."""
    state.begin_epoch(epoch, AT_ONCE)
    state.set_control(epoch, DriverControl())
    return state


def folder(path: Path) -> Objects:
    return Folder(path / "orders.plan.json.state")


def bucket(path: Path) -> Objects:
    """An object store, as far as drainer sees one: all goes through obstore."""
    store = LocalStore(path / "store", mkdir=True, automatic_cleanup=True)
    return Bucket(store, "s3://bucket/drains")


class FailingObjects(Objects):
    """Objects that are out of reach, or hang, as long as the test wants."""

    def __init__(self, inner: Objects) -> None:
        self.inner = inner
        self.uri, self.is_local = inner.uri, inner.is_local
        self.full = False
        self.gone = False
        self.arrives_anyway = False
        self.answers = threading.Event()
        self.answers.set()
        self.puts: list[str] = []

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        self.puts.append(name)
        self._pass()
        if self.full:
            raise PlanNotWritten("the disk is full")
        if self.arrives_anyway:
            self.inner.put(name, data, beside=beside)
            raise StateLost("no answer")
        self.inner.put(name, data, beside=beside)

    def create(self, name: str, data: bytes, *, beside: bool = False) -> bool:
        self._pass()
        return self.inner.create(name, data, beside=beside)

    def get(self, name: str) -> bytes | None:
        self._pass()
        return self.inner.get(name)

    def children(self, prefix: str) -> list[str]:
        self._pass()
        return self.inner.children(prefix)

    def remove(self, prefix: str) -> None:
        self._pass()
        self.inner.remove(prefix)

    def _pass(self) -> None:
        self.answers.wait(10)
        if self.gone:
            raise StateLost("out of reach")


def done(
    watermark: int, *finished: Range, count: int, partial: dict[int, Partial] | None = None
) -> Progress:
    """Progress of so many messages with two sub-messages each, all of them finished."""
    messages, subs = counts(done=count), counts(done=2 * count)
    return progress_at(
        watermark, finished=finished, partial=partial or {}, messages=messages, sub_messages=subs
    )


def names_in(objects: Objects, prefix: str = "") -> list[str]:
    """All names below a prefix, with the prefix before each."""
    found: list[str] = []
    for child in objects.children(prefix):
        name = f"{prefix}/{child}" if prefix else child
        found += names_in(objects, name) or [name]
    return sorted(found)
