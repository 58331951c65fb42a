"""The downstream of the demo: a search index behind HTTP, which takes 20 ms for an update.

It is a process of its own, so it outlives a drain that is killed. Like the sandbox it goes on when
the demo is over: it ends when its file in the sandbox's folder is gone, as after ``sandbox down``,
or when that file names another service. It serves all demos of that sandbox.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import orjson

from drainer.errors import DrainerError
from drainer.host.process import python_module, start_apart
from drainer.sandbox.ports import HOST, free_port
from drainer.store.atomic_file import write_whole

UPDATE_S = 0.02
FILE, LOG = "demo.url", "demo.log"
START_TIMEOUT_S, POLL_S, LOOK_S = 30.0, 0.05, 0.5


@dataclass(slots=True)
class Index:
    """What the updates of one topic have made of the index, and how often they broke a law.

    An update whose id came before changes nothing, so each has its effect once.
    """

    versions: dict[str, int] = field(default_factory=dict)  # The version of each document.
    ids: set[str] = field(default_factory=set)
    repeats: int = 0
    out_of_order: int = 0
    overlapping: int = 0
    busy: set[str] = field(default_factory=set)

    async def update(self, id: str, document: str, version: int) -> None:
        self.overlapping += document in self.busy
        self.busy.add(document)
        await asyncio.sleep(UPDATE_S)
        self.busy.discard(document)
        if id in self.ids:
            self.repeats += 1
            return
        self.ids.add(id)
        self.out_of_order += self.versions.get(document, -1) > version
        self.versions[document] = version


class Service:
    """The service of a sandbox, and its account of a topic."""

    def __init__(self, folder: Path) -> None:
        """Find the service of a sandbox, or start it and wait until it answers.

        Raises DrainerError when it does not answer in time.
        """
        file, log = folder / FILE, folder / LOG
        self.url = file.read_text(encoding="utf-8") if file.exists() else ""
        if self._answers():
            return
        port = free_port()
        self.url = _url(port)
        write_whole(file, self.url.encode())
        words = python_module(__name__, str(file), str(port))
        started = start_apart(words, folder, log, die_with_parent=False)
        until_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if started.poll() is not None or time.monotonic() > until_s:
                raise DrainerError("the service of the demo did not start", hint=f"See {log}.")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        with suppress(OSError, ValueError):
            self.account("")
            return True
        return False

    def account(self, topic: str) -> dict[str, Any]:
        """Return the fields of a topic's ``Index``, with ``updates`` for the number of ids."""
        with urlopen(f"{self.url}/{topic}", timeout=START_TIMEOUT_S) as answer:
            found: dict[str, Any] = orjson.loads(answer.read())
        return found


def serve(port: int) -> None:
    """Answer on a port for ever, in another thread than the main one."""
    from aiohttp import web  # noqa: PLC0415 - an extra

    indexes: dict[str, Index] = {}

    async def update(request: Any) -> Any:
        if request.method == "POST":  # drainer asks with OPTIONS whether the service is there.
            sub = orjson.loads(await request.read())
            index = indexes.setdefault(sub["topic"], Index())
            await index.update(sub["id"], sub["key"], sub["payload"]["version"])
        return web.Response(status=204)

    async def account(request: Any) -> Any:
        index = indexes.get(request.match_info["topic"], Index())
        found = {**asdict(index), "updates": len(index.ids)}
        del found["ids"], found["busy"]
        return web.Response(body=orjson.dumps(found))

    app = web.Application()
    app.router.add_route("*", "/updates", update)
    app.router.add_get("/updates/{topic:.*}", account)
    web.run_app(app, host=HOST, port=port, print=None, access_log=None, handle_signals=False)


def main() -> None:
    """Serve until the file no longer has the URL of this service."""
    file, port = Path(sys.argv[1]), int(sys.argv[2])
    Thread(target=serve, args=[port], daemon=True).start()
    while file.exists() and file.read_bytes() == _url(port).encode():
        time.sleep(LOOK_S)


def _url(port: int) -> str:
    return f"http://{HOST}:{port}/updates"


if __name__ == "__main__":
    main()
