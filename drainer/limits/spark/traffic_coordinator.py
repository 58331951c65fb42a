"""The driver's line to the tasks that host traffic: it tells them to go on, and hears from them.

It repeats its order all the time: a task that hears nothing for a second stops its traffic. So the
traffic ends with this process, however that ends.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress

import orjson

from drainer.errors import DrainerError, Interrupted
from drainer.limits.search.reading import Report
from drainer.limits.spark.orders import TELL_S, TrafficOrder
from drainer.spark.failure import error_of

GREETING_S = 5.0
LINE_BYTES = 1024 * 1024
CLOSE_S = 2.0

Heard = Callable[[int, Report], None]


class TrafficCoordinator:
    """Listens on ``bind`` for so many tasks, in a thread of its own.

    Whoever doesn't present ``token`` is hung up on. ``heard`` is called in that thread with the
    number of a task and what it reports. ``lost`` is why the traffic can't go on: what a task
    said of it, or that it is gone.
    """

    def __init__(self, bind: str, tasks: int, heard: Heard) -> None:
        self.token = secrets.token_urlsafe(24)
        self.port = 0
        self.lost: DrainerError | None = None
        self._bind = bind
        self._tasks = tasks
        self._heard = heard
        self._order = TrafficOrder(1)
        self._here: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._changed, self._closing = asyncio.Event(), asyncio.Event()
        self._opened = threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="traffic-tower", daemon=True)

    @property
    def here(self) -> int:
        """How many tasks are connected."""
        return len(self._here)

    @property
    def order(self) -> TrafficOrder:
        """What the tasks are told."""
        return self._order

    def open(self) -> None:
        """Raises Interrupted when it can't listen."""
        self._thread.start()
        self._opened.wait()
        if self._failed is not None:
            raise Interrupted(
                f"can't listen on {self._bind} for the tasks: {self._failed.strerror}",
                hint="is spark.driver.bindAddress an address of this machine?",
            )

    def tell(self, order: TrafficOrder) -> None:
        """Orders something else, at once."""
        self._order = order
        with suppress(RuntimeError):  # it has ended, and nobody listens
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Says that it is over, and hangs up."""
        if self._thread.is_alive():
            self.tell(TrafficOrder(self._order.number + 1, over=True))
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(CLOSE_S)

    def _wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except OSError as error:
                self._failed = error
            finally:
                self._opened.set()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._greet, self._bind, 0, limit=LINE_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        self._opened.set()
        async with server:
            await self._closing.wait()
            await asyncio.sleep(2 * TELL_S)  # for the last order to be heard

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: int | None = None
        try:
            async with asyncio.timeout(GREETING_S):
                greeting = orjson.loads(await reader.readline())
            if not hmac.compare_digest(str(greeting["token"]).encode(), self.token.encode()):
                return
            if self.lost is not None:
                return  # Spark tries again what has failed
            task = int(greeting["task"])
            self._here.add(task)
            telling = asyncio.create_task(self._tell_on(writer))
            try:
                await self._listen(task, reader)
            finally:
                telling.cancel()
        except (OSError, ValueError, KeyError, TypeError, TimeoutError):
            pass  # hung up on, or nobody we know
        except asyncio.CancelledError:
            pass  # it is over; what is raised here would be logged
        finally:
            if task is not None and not self._order.over:
                self._here.discard(task)
                self.lost = self.lost or Interrupted(
                    f"task {task} of the traffic is gone", hint="Spark's log says why"
                )
            writer.close()

    async def _listen(self, task: int, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            said = orjson.loads(line)
            if "failure" in said:
                self.lost = self.lost or error_of(said["failure"])
                return
            self._heard(task, Report.from_json(said))

    async def _tell_on(self, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(orjson.dumps(self._order) + b"\n")
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._changed.wait()
