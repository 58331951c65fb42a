"""The handler under test, in any of its forms, and the messages that it is tested with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from drainer.handler import Context
from drainer.handlers.produce import as_value
from drainer.host.calls import has_running_loop, in_a_thread
from drainer.loading.extensions import without_prefix
from drainer.loading.loader import NO_EXTRAS, LoadedHandler, load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model.sub_messages import identify
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.split.splitting import split_up

T = TypeVar("T")

# A handler is given as a class, an instance, a module, a function that makes one of these, or a
# reference such as `drainer run --handler` takes.
HandlerSource = Any
Value = bytes | str | None | Mapping[str, Any] | Sequence[Any] | int | float

AT_ONCE = 10  # The concurrency of tests, which the context for ``open`` has, too.
TOPIC = "orders"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def message(
    value: Value = None,
    key: bytes | str | None = None,
    *,
    offset: int = 0,
    partition: int = 0,
    topic: str = TOPIC,
    timestamp: int | None = None,
    headers: Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] = (),
) -> Message:
    """Make a message as ``split`` receives it.

    ``value`` is bytes, None, text (which is encoded in UTF-8), or anything that can be written as
    JSON. ``headers`` are pairs or a mapping. Text in them is also encoded in UTF-8.
    """
    origin = Origin(topic, TOPIC_ID, partition)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded = [(name, as_value(each)) for name, each in pairs]
    return Message(origin, offset, as_value(key), as_value(value), timestamp, encoded)


def messages(values: Iterable[Value], key: bytes | str | None = None) -> list[Message]:
    """Make a message from each value, as ``message`` does.

    The messages have the offsets 0, 1, 2 and so on in partition 0. Raises TypeError for one text,
    whose characters would be the values.
    """
    if isinstance(values, str | bytes):
        raise TypeError("messages() takes a list of values; for one value, use message()")
    return [message(value, key, offset=offset) for offset, value in enumerate(values)]


def again(message: Message) -> Message:
    """Return a new message with the same content, as another run would get it."""
    headers = list(message.headers)
    return Message(
        message.origin, message.offset, message.key, message.value, message.timestamp, headers
    )


def sub_messages_of(handler: LoadedHandler, message: Message) -> list[SubMessage]:
    """Split a copy of a message, and return its sub-messages. Raises SplitFailed."""
    message = again(message)
    subs = split_up(handler.split, message)
    identify(message, subs)
    return subs


class Subject:
    """The handler under test, from which ``fresh`` makes a new handler for each run."""

    def __init__(
        self,
        source: HandlerSource,
        options: Mapping[str, str] | None = None,
        payloads: PayloadSettings = BY_HANDLER,
        extras: Mapping[str, str] = NO_EXTRAS,
    ) -> None:
        self.source, self.options = source, dict(options or {})
        found = load_handler(source, payloads, extras) if isinstance(source, str) else source
        self._loaded = known = found if isinstance(found, LoadedHandler) else None
        self.payloads = known.payloads if known else payloads
        self.extras = known.extras if known else extras
        self.name = known.reference if known else _name_of(source)

    @property
    def reference(self) -> str | None:
        """The name by which another process finds the handler; None if it has no name."""
        return self._loaded.absolute_reference if self._loaded else None

    def fresh(self) -> LoadedHandler:
        """Make a handler that no run has used, unless the source is an instance or a module.

        Raises UsageError when the source is not a handler, and Refused when making one fails.
        """
        if self._loaded is not None:
            return self._loaded.fresh().configured(self.options)
        source: Any = self.source
        makes = callable(source) and not isinstance(source, type) and not hasattr(source, "handle")
        own = source() if makes else source
        made = LoadedHandler(self.name, own, "", self.payloads, self.extras)
        return made.configured(self.options)

    @asynccontextmanager
    async def opened(self, messages: Sequence[Message]) -> AsyncIterator[LoadedHandler]:
        """Make a fresh handler and open it, yield it, and close it at the end."""
        handler = self.fresh()
        topic = messages[0].topic if messages else TOPIC
        extras = partial(without_prefix, self.extras)
        options = dict(self.options)
        await handler.open(Context(topic, "certify", "certify", AT_ONCE, options, extras=extras))
        try:
            yield handler
        finally:
            await handler.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in another thread if an event loop runs in this one."""
    return in_a_thread(asyncio.run, work).result() if has_running_loop() else asyncio.run(work)


def _name_of(source: Any) -> str:
    named = source if hasattr(source, "__qualname__") else type(source)
    if isinstance(source, ModuleType):
        return source.__name__
    return str(named.__qualname__).rpartition("<locals>.")[2]
