"""What a handler says about being given several sub-messages at once."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from drainer.core.bundles import BatchOf, Bundle, Bundling
from drainer.errors import UsageError
from drainer.handler import Handler
from drainer.message import SubMessage


def own(target: Any, name: str) -> Any:
    """What a handler, an instance or a module, has of this name; None when it is the default."""
    found = getattr(target, name, None)
    default = getattr(Handler, name, None)
    return None if getattr(found, "__func__", None) is default else found


def bundling_of(reference: str, target: Any) -> Bundling | None:
    """How it wants its sub-messages together; None when it takes them one by one.

    Raises UsageError when what it says makes no sense.
    """
    coalesce, batch = own(target, "coalesce"), own(target, "handle_batch")
    if coalesce is None and batch is None:
        return None
    for name, function in (("coalesce", coalesce), ("handle_batch", batch)):
        if function is not None and not callable(function):
            raise UsageError(f"the `{name}` of {reference!r} is no function")
    if batch is None:
        return Bundling(coalesce)
    most = getattr(target, "max_batch", Handler.max_batch)
    linger_ms = getattr(target, "linger_ms", Handler.linger_ms)
    of = getattr(target, "batch_of", Handler.batch_of)
    if type(most) is not int or most < 1:
        raise UsageError(f"max_batch = {most!r} of {reference!r} is no number of sub-messages")
    if type(linger_ms) not in (int, float) or not isfinite(linger_ms) or linger_ms < 0:
        raise UsageError(f"linger_ms = {linger_ms!r} of {reference!r} is no number of milliseconds")
    if of not in [each.value for each in BatchOf]:
        raise UsageError(
            f"batch_of = {of!r} of {reference!r} is neither 'lanes' nor 'lane'",
            hint="'lanes' for the heads of many sub-keys in a call, 'lane' for a run of one",
        )
    return Bundling(coalesce, most, BatchOf(of), linger_ms / 1000)


def by_bundle(target: Any) -> Callable[[Bundle], Any]:
    """The handler as a function of bundles."""
    batch = own(target, "handle_batch")
    if batch is not None:
        return lambda bundle: batch(bundle.subs)
    handle = target.handle
    return lambda bundle: handle(bundle.subs[0])


def one_by_one(target: Any) -> Callable[[SubMessage], Any]:
    """The handler as a function of single sub-messages."""
    batch = own(target, "handle_batch")
    if batch is None:
        handle: Callable[[SubMessage], Any] = target.handle
        return handle
    return lambda sub: batch([sub])
