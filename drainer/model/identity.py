"""Identity of sub-messages: index and sub-keys, and a check that they can be accounted for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import cast

from drainer.errors import SplitFailed
from drainer.mask import key_repr
from drainer.message import Barrier, KeySums, Message, SubMessage, Unsplit

_KINDS = {SubMessage, Barrier}
_ATOMS = {str, bytes, type(None)}
SHOWN = 80  # characters of a key in an error
INT_BITS_MOST = 2_000  # Python refuses to print much longer ones, and a plan has keys as text


class SubKeys(tuple[Hashable, ...]):
    """The sub-keys of one sub-message that has several; a sub-key may be a tuple itself."""

    __slots__ = ()


def is_sub_key(key: object) -> bool:
    """Whether equal keys have one text, other keys another, and both the same in every process.

    That is so for exactly these types: str, bytes, int, None, and tuples of them. A bool or a float
    equals an int that reads otherwise; a subclass may equal or print what it likes.
    """
    kind = type(key)
    if kind is tuple or kind is SubKeys:
        return all(map(is_sub_key, cast("tuple[object, ...]", key)))
    return kind in _ATOMS or (kind is int and cast(int, key).bit_length() <= INT_BITS_MOST)


def identify_or_reject(
    message: Message, subs: Iterable[SubMessage]
) -> tuple[Sequence[SubMessage], Sequence[Hashable] | KeySums]:
    """Sub-messages with their identity, and their sub-keys.

    Where they would break the account, one unit stands for the whole message.
    """
    sequence = subs if type(subs) is list else list(subs)
    try:
        return sequence, identify(message, sequence)
    except SplitFailed as error:
        unit = Unsplit(message.value, SplitFailed.__name__, str(error), str(error))
        return [unit], unit.take_place(message)


def identify(message: Message, subs: Sequence[SubMessage]) -> tuple[Hashable, ...] | KeySums:
    """Gives each sub-message its identity; their sub-keys.

    Raises SplitFailed for what would break the account later on.
    """
    if not _KINDS.issuperset(map(type, subs)):
        if isinstance(subs[0], Unsplit):
            return subs[0].take_place(message)
        for sub in subs:
            if not isinstance(sub, SubMessage):
                kind = f"the type {sub.__name__}" if isinstance(sub, type) else type(sub).__name__
                raise SplitFailed(
                    f"split gave {kind} instead of SubMessage at {message}",
                    hint="Yield drainer.SubMessage(key=..., payload=...).",
                )
    try:
        for index, sub in enumerate(subs):
            if sub.message is not None:
                raise SplitFailed(
                    f"split gave the same SubMessage object at {message} and at {sub.message}",
                    hint="Make a new SubMessage for each operation.",
                )
            sub.message = message
            sub.index = index
        keys = tuple([sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs])
    except AttributeError as error:
        raise SplitFailed(
            f"split gave an incomplete {type(error.obj).__name__} at {message}: {error}",
            hint="Call super().__init__(key, payload) in subclasses of SubMessage.",
        ) from None
    if not _ATOMS.issuperset(map(type, keys)):
        for sub, key in zip(subs, keys, strict=True):
            if not is_sub_key(key):
                raise SplitFailed(
                    f"split gave the sub-key {key_repr(key)[:SHOWN]} at {sub}, of an unstable type:"
                    f" {_odd_type(key)}",
                    hint="Use str, bytes, int, None or tuples of them as sub-keys.",
                )
    return keys


def _odd_type(key: object) -> str:
    if isinstance(key, SubKeys) or type(key) is tuple:
        return _odd_type(next(each for each in key if not is_sub_key(each)))
    return "a too long int" if type(key) is int else type(key).__name__
