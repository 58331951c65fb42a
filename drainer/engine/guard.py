"""A guard before the handler: asked at the very moment at which something would begin."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import NoReturn

from drainer.handler import Retry
from drainer.loader import LoadedHandler

ASK_AGAIN_S = 0.1


def guarded(handler: LoadedHandler, may_begin: Callable[[], bool]) -> LoadedHandler:
    """The same handler, which gets nothing while ``may_begin`` says no; it gets it later.

    An engine looks at its lock twenty times a second. A process that stood still would begin
    something between waking up and the next look; ``Fence.sure`` knows better.
    """
    handle, handle_bundle = handler.handle, handler.handle_bundle
    guarding = copy(handler)
    # Without a coroutine around each call: a backlog has millions of them.
    guarding.handle = lambda sub: handle(sub) if may_begin() else _not_now()
    guarding.handle_bundle = lambda bundle: handle_bundle(bundle) if may_begin() else _not_now()
    return guarding


def _not_now() -> NoReturn:
    raise Retry("another attempt may be at work", after=ASK_AGAIN_S)
