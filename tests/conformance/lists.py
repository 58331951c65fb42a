"""Handler of nights on a real broker: it appends to lists in a database, and writes down its calls.

It reads the lists of a sub-message's lanes, waits, and writes them with one more, which is right
only while nobody else is at these lanes. What is there already by ``sub.id`` is not appended again,
as docs/handlers.md advises. ``sabotage`` makes it do one thing wrong, now and then.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib

from recorder import OnTheLoop  # type: ignore[import-not-found]  # a copy lies beside it

from drainer import Context, SubMessage

READ_EACH = 8  # elements: each read is a whole list, and a history of all of them would be long
UNLUCKY_EACH = 50  # sub-messages that the sabotage meets one of

Element = tuple[str, int]  # the sub-message's id, and the process that appended it


class Lists(OnTheLoop):  # type: ignore[misc]  # as it is not found here
    def open(self, context: Context) -> None:
        super().open(context)
        self._sabotage = self.options.get("sabotage")
        # A plain open runs on a thread of its own; after that, only the event loop uses it.
        self._lists = sqlite3.connect(
            self.options["lists"], isolation_level=None, check_same_thread=False
        )
        self._lists.execute("PRAGMA journal_mode = WAL")
        self._lists.execute("PRAGMA synchronous = OFF")  # a kill of the process loses nothing
        self._lists.execute("CREATE TABLE IF NOT EXISTS lists (lane PRIMARY KEY, elements)")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._calls = os.open(self.options["calls"], flags, 0o600)

    async def handle(self, sub: SubMessage) -> None:
        place = [sub.message.partition, sub.message.offset, sub.index]
        lanes = [str(key) for key in sub.keys or [sub.key]]
        read = {lane: self._read(lane) for lane in lanes}
        told = {lane: found for lane, found in read.items() if len(found) % READ_EACH == 0}
        self._tell("begun", place, lanes, told)
        await super().handle(sub)
        self._append((sub.id, self._pid), read)
        self._tell("done", place, lanes, {})

    def _read(self, lane: str) -> list[Element]:
        row = self._lists.execute("SELECT elements FROM lists WHERE lane = ?", [lane]).fetchone()
        return json.loads(row[0]) if row else []

    def _append(self, element: Element, read: dict[str, list[Element]]) -> None:
        unlucky = zlib.crc32(element[0].encode()) % UNLUCKY_EACH == 0
        wrong = self._sabotage if unlucky else None
        written = {}
        for lane, found in read.items():
            known = any(each[0] == element[0] for each in found)
            if wrong == "drop" or (known and self._sabotage != "repeat"):
                continue
            more = [element] * (2 if wrong == "repeat" else 1)
            if wrong == "swap":
                written[lane] = [*found[:-1], *more, *found[-1:]]
            else:
                written[lane] = [*found, *more]
        rows = [(lane, json.dumps(found)) for lane, found in written.items()]
        self._lists.execute("BEGIN IMMEDIATE")
        self._lists.executemany("INSERT OR REPLACE INTO lists VALUES (?, ?)", rows)
        self._lists.execute("COMMIT")

    def _tell(
        self, mark: str, place: list[int], lanes: list[str], read: dict[str, list[Element]]
    ) -> None:
        line = json.dumps([mark, self._pid, place, lanes, read])
        os.write(self._calls, b"\n" + line.encode())  # a kill may tear it: not the next one too
