"""A plan in an object store, for drains whose driver may run on any machine."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from drainer.errors import LockLost, PlanNotWritten, PlanRefused, StateLost, raised_as
from drainer.model.plan import OffsetPlan
from drainer.spark.state.bucket import open_bucket
from drainer.spark.state.objects import check_uri
from drainer.store.place import STORES, PlanPlace
from drainer.store.plan_file import SavedPlan, no_plan

if TYPE_CHECKING:
    from obstore import UpdateVersion

TRY_FOR_S = 30.0  # A plan is offered to a store for this long if the store fails.
TRY_AGAIN_S = 1.0

_refusing = partial(raised_as, PlanRefused, StateLost, hint="Name another place with --plan.")


class StoredPlan(SavedPlan):
    """A plan at the URI of an object.

    An object has no lock as a file has. The lock on the group keeps other drains off. If a driver
    was killed, a resume waits until its lock on the group has expired. Each write names the version
    that it replaces, so that a process which another one has replaced can't write. The plan has no
    journal, because tasks write what they finish to the state.
    """

    def __init__(self, uri: str) -> None:
        """Raises UsageError or StateRefused if the URI can't be used."""
        super().__init__(uri)
        check_uri(uri, STORES)
        place, mark, options = uri.partition("?")
        self._folder, _, self._name = place.rpartition("/")
        self._options = f"{mark}{options}"
        self._bucket = open_bucket(f"{self._folder}{self._options}")
        self._tag: UpdateVersion | None = None  # The version that was read or written last.
        # Plans that were sent after that version and got no answer. They may have been written.
        self._unanswered: set[bytes] = set()
        self._owner = token_hex(8)

    @property
    def path(self) -> str:
        return self._uri(self._name)

    @property
    def exists(self) -> bool:
        with _refusing():
            return self._bucket.get(self._name) is not None

    def check_writable(self) -> str:
        with _refusing():
            self._bucket.get(self._name)
        return f"{self._uri('')} is reachable"

    def acquire(self) -> None:
        with _refusing():
            self._bucket.ensure_create()
            self._bucket.ensure_replace()

    @property
    def owner(self) -> str:
        return self._owner

    def write(self, plan: OffsetPlan) -> None:
        data, until_s = plan.encode(), time.monotonic() + TRY_FOR_S
        while True:
            try:
                self._replace(data)
            except StateLost as error:
                if time.monotonic() > until_s:
                    raise PlanNotWritten(str(error), hint=error.hint) from error
                time.sleep(TRY_AGAIN_S)
            else:
                return

    def archive(self, plan: OffsetPlan) -> str:
        """Copy the finished plan to another name, so that a new plan can take its place."""
        aside = f"{self._name.removesuffix('.json')}.{plan.terms.drain_id}.json"
        with _refusing():
            self._bucket.put(aside, plan.encode())
        return self._uri(aside)

    def _rollback(self, aside: PlanPlace | None) -> None:
        with suppress(StateLost, LockLost):
            if aside is None:
                self._bucket.remove(self._name)
                return
            name = str(aside).partition("?")[0].rpartition("/")[2]
            found = self._bucket.get(name)
            if found is not None:
                self._replace(found)
                self._bucket.remove(name)

    def _replace(self, data: bytes) -> None:
        self._unanswered.add(data)
        tag = self._bucket.replace(self._name, data, self._tag)
        if tag is None:
            found = self._bucket.tagged(self._name)
            if found is not None and found[0] in self._unanswered:
                tag = self._bucket.replace(self._name, data, found[1])
        if tag is None:
            raise LockLost(
                f"another process wrote the plan {self.path}",
                hint="Find where it runs, and let it end.",
            )
        self._tag = tag
        self._unanswered.clear()

    def _read(self) -> bytes:
        with _refusing():
            found = self._bucket.tagged(self._name)
        if found is None:
            raise no_plan(self.path)
        data, self._tag = found
        return data

    def _uri(self, name: str) -> str:
        return f"{self._folder}/{name}{self._options}"
