"""A handler that writes down what it does, so that order, loss and repeats show from outside.

The tests copy this file and name the copy to ``--handler``, and Spark's workers load it by its
path. A message's value is a JSON list of operations: a sub-key, a list of sub-keys, or null for a
barrier. Each attempt makes two lines in the file that the option ``record`` names: one when it
begins, one when it is done or has failed. Further ones:

``pause_ms``: how long each takes; ``gate``: a file that each waits for; ``gated``: the sub-key that
alone does; ``fail``: the place (``partition/offset/index``) that fails; ``hang``: for a minute.

``bad``: sub-keys, with commas between them, that fail.
A value that begins with ``!`` makes split raise the exception that it names, unless ``fixed``.
``up``: a file without which whatever comes from the offset ``down_from`` on fails.

``skip``: a sub-key that is skipped; ``token``: the one that the client's file must have; ``life``:
a line is also made when the handler is opened, splits its first message if it is slow, or each one
if that is its purpose, and closes; ``open_s``, ``split_s``: how long it takes for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import drainer
from drainer import Barrier, Context, Handler, Message, Skip, SubMessage

GATE_POLL_S = 0.002
HANG_S = 60.0


class Recorder(Handler):
    """Base of both kinds; ``_record`` is a file open for appending, a line a write."""

    def open(self, context: Context) -> None:
        # A resume drops an option of the last run by giving it an empty value.
        self.options = options = {n: text for n, text in context.options.items() if text}
        assert options.get("token") == context.extras("http.").get("token")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._record = os.open(options["record"], flags, 0o600)
        # In containers, each drain is process 1.
        self._pid = int(os.environ.get("RECORDER_PID") or os.getpid())
        self._pause_s = float(options.get("pause_ms", "0")) / 1000
        self._gate = Path(options["gate"]) if "gate" in options else None
        self._gated = options.get("gated")
        self._fail = options.get("fail")
        self._hang = "hang" in options
        self._bad = set(options.get("bad", "").split(",")) - {""}
        self._up = Path(options["up"]) if "up" in options else None
        self._fixed = "fixed" in options
        self._down_from = int(options.get("down_from", "0"))
        self._live("open")

    def split(self, message: Message) -> Iterator[SubMessage]:
        value = message.value or b"[]"
        if value[:1] == b"!":
            if not self._fixed:
                name = value[1:].decode()
                raise getattr(drainer, name, ValueError)(f"malformed: {name}")
            value = b'["hot", "fixed"]'
        for operation in json.loads(value):
            if operation is None:
                yield Barrier()
            elif isinstance(operation, list):
                yield SubMessage(keys=operation)
            else:
                yield SubMessage(operation)

    def close(self) -> None:
        self._live("close")
        os.close(self._record)

    def _waits(self, sub: SubMessage) -> bool:
        if self._gate is None or (self._gated is not None and sub.key != self._gated):
            return False
        return not self._gate.exists()

    def _note(self, mark: str, sub: SubMessage) -> None:
        keys = None if isinstance(sub, Barrier) else sub.keys or [sub.key]
        place = [sub.message.partition, sub.message.offset, sub.index]
        self._write(mark, place, keys, sub.attempt, sub.id)

    def _live(self, mark: str) -> None:
        if "life" in self.options:
            self._write(mark, [], None, 0, "")

    def _write(self, mark: str, *facts: object) -> None:
        line = json.dumps([mark, self._pid, time.monotonic(), *facts], default=bytes.decode)
        os.write(self._record, b"\n" + line.encode())  # a kill may tear it: not the next one too

    @contextmanager
    def _noted(self, sub: SubMessage) -> Iterator[None]:
        self._note("begun", sub)
        try:
            self._fail_if_bad(sub)
            yield
        except BaseException:
            self._note("failed", sub)
            raise
        self._note("done", sub)

    def _fail_if_bad(self, sub: SubMessage) -> None:
        message = sub.message
        if self._up is not None and message.offset >= self._down_from and not self._up.exists():
            raise ConnectionError("the index is away")
        if sub.key is not None and sub.key == self.options.get("skip"):
            raise Skip("as the option requests")
        place = f"{message.partition}/{message.offset}/{sub.index}"
        if sub.key in self._bad or place == self._fail:
            raise LookupError("the document is locked")


class OnTheLoop(Recorder):
    async def handle(self, sub: SubMessage) -> None:
        with self._noted(sub):
            while self._waits(sub):  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(GATE_POLL_S)
            await asyncio.sleep(HANG_S if self._hang else self._pause_s)


class OnThreads(Recorder):
    def handle(self, sub: SubMessage) -> None:
        with self._noted(sub):
            while self._waits(sub):
                time.sleep(GATE_POLL_S)
            time.sleep(HANG_S if self._hang else self._pause_s)


class BlocksTheLoop(Recorder):
    """The mistake that everyone makes once: a blocking call in an async function."""

    async def handle(self, sub: SubMessage) -> None:
        with self._noted(sub):
            time.sleep(HANG_S if self._hang else self._pause_s)  # noqa: ASYNC251 - the mistake


class Whole(OnTheLoop):
    """Uses the default split, so that each message is one sub-message."""

    split = Handler.split  # type: ignore[assignment]


class Shut(OnTheLoop):
    """Can't be opened."""

    def open(self, context: Context) -> None:
        raise ConnectionError("the index is down")


class Splits(OnTheLoop):
    """Makes a line for each message that it splits."""

    def split(self, message: Message) -> Iterator[SubMessage]:
        self._live("split")
        time.sleep(float(self.options.get("split_s", "0")))
        yield from super().split(message)


class Slow(OnTheLoop):
    """Takes long to open and to split, so that a test can act meanwhile."""

    _splits = False

    def open(self, context: Context) -> None:
        super().open(context)
        time.sleep(float(self.options.get("open_s", "0")))

    def split(self, message: Message) -> Iterator[SubMessage]:
        if not self._splits:
            self._splits = True
            self._live("split")
        time.sleep(float(self.options.get("split_s", "0")))
        yield from super().split(message)
