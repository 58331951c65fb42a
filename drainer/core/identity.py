"""What makes the sub-messages of a message tell apart, and what would break their account."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from drainer.core.closure import SubKeys
from drainer.errors import SplitFailed
from drainer.message import Barrier, Message, SubMessage

_KINDS = {SubMessage, Barrier}


def identify(message: Message, subs: Sequence[SubMessage]) -> tuple[Hashable, ...]:
    """Gives each sub-message its identity; their sub-keys.

    Raises SplitFailed for what would break the account later on.
    """
    if not _KINDS.issuperset(map(type, subs)):
        for sub in subs:
            if not isinstance(sub, SubMessage):
                kind = f"the type {sub.__name__}" if isinstance(sub, type) else type(sub).__name__
                raise SplitFailed(
                    f"split gave {kind} instead of SubMessage at {message}",
                    hint="yield drainer.SubMessage(key=..., payload=...)",
                )
    try:
        for index, sub in enumerate(subs):
            if sub.message is not None:
                raise SplitFailed(
                    f"split gave a SubMessage at {message} that it had given before, at"
                    f" {sub.message}",
                    hint="make a new SubMessage for each operation of each message",
                )
            sub.message = message
            sub.index = index
        keys = tuple([sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs])
        hash(keys)
    except TypeError as error:
        raise SplitFailed(
            f"split gave a sub-key that is not hashable at {message}: {error}",
            hint="use str, bytes, int or tuples of them as sub-keys",
        ) from None
    except AttributeError as error:
        raise SplitFailed(
            f"split gave {type(error.obj).__name__} at {message} that is no whole SubMessage:"
            f" {error}",
            hint="call super().__init__(key, payload) in classes derived from SubMessage",
        ) from None
    return keys
