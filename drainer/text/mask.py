"""Masks personal data, which may be in keys and in error texts, wherever drainer shows them.

An environment variable switches masking on, because it applies to everything that a process writes,
whatever the command is. The value of the variable is the secret with which masks are made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from hashlib import blake2b

from drainer.text.escape import SCREEN, foreign, repr_of, shorten
from drainer.text.secret import redact

VARIABLE = "DRAINER_MASK_KEYS"
MASKED = "(masked)"
TYPE_CHARACTERS = 200  # The name of an exception's class is cut to this many characters.
ERROR_CHARACTERS = 1000  # The error of a sub-message that is given up is cut to this many.
LEAVES_MOST = 3  # At most this many exceptions of an exception group are shown.
LEAF_CHARACTERS = 300  # Each exception of an exception group is cut to this many characters.
CAUSES_MOST = 10  # At most this many causes are followed, because they may form a circle.
_DIGITS_BYTES = 4
_MASK = re.compile("key#[0-9a-f]{8}")
_LONGEST_KEY = 256  # repr() of a longer key is slow, so only its two ends are used.


def secret() -> str:
    """Return the secret with which masks are made; empty if nothing is masked."""
    return os.environ.get(VARIABLE, "")


def use(found: str) -> None:
    """Mask keys with the secret of another process. An empty secret changes nothing."""
    if found:
        os.environ[VARIABLE] = found


def masking() -> bool:
    """Return whether personal data is masked."""
    return bool(secret())


def mask_text(text: str) -> str:
    """Return the text of a key, or a mask such as ``key#3fa9c1d2`` if masking is on.

    The same text and secret give the same mask. Without the secret, nobody can find the text by
    trying many texts.
    """
    if not masking():
        return text
    salt = blake2b(os.fsencode(secret())).digest()
    data = text.encode("utf-8", "backslashreplace")
    return f"key#{blake2b(data, digest_size=_DIGITS_BYTES, key=salt).hexdigest()}"


def key_repr(key: Hashable) -> str:
    """Return the repr of a sub-key, masked if masking is on. It never raises."""
    return mask_text(repr_of(key))


def mask_reported(text: str) -> str:
    """Return a sub-key's text that another process has reported, masked if masking is on.

    If that process has masked the sub-key, its mask stays as it is.
    """
    return text if _MASK.fullmatch(text) else mask_text(text)


def short_key(key: Hashable, width: int = 24) -> str:
    """Return a sub-key's repr, shortened or masked. It never raises."""
    half = _LONGEST_KEY // 2
    if isinstance(key, str | bytes) and len(key) > _LONGEST_KEY:
        key = key[:half] + key[-half:]  # type: ignore[operator]  # Both have the same type.
    return shorten(key_repr(key), width)


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class, or of the class of all exceptions in a group."""
    own = error if isinstance(error, BaseExceptionGroup) else None
    names = {type(leaf).__name__ for leaf in leaves(own)}
    return foreign(names.pop() if len(names) == 1 else type(error).__name__, TYPE_CHARACTERS)


def leaves(error: BaseException | None) -> list[BaseException]:
    """Return the exceptions inside a group, where groups may be nested.

    The group is the given exception, or else the first group in its chain of causes.
    """
    for _ in range(CAUSES_MOST):
        if error is None or isinstance(error, BaseExceptionGroup):
            break
        error = error.__cause__
    found: list[BaseException] = []
    waiting = [error] if isinstance(error, BaseExceptionGroup) else []
    while waiting:
        for each in waiting.pop(0).exceptions:
            (waiting if isinstance(each, BaseExceptionGroup) else found).append(each)
    return found


def error_text(error: BaseException, most: int = SCREEN, *, whole: bool = False) -> str:
    """Return the first line of an exception's text, and those of the exceptions in its group.

    Of a group, only a few different exceptions are shown, and the others are counted. If masking is
    on, the text has only the types of the exceptions in a group. With ``whole``, which is for a
    dead letter, the text has all lines and is never masked.

    It never raises, although a ``__str__`` may be the user's own code.
    """
    inner = {f"{type(leaf).__name__}: {_text(leaf, whole)}": None for leaf in leaves(error)}
    shown = [foreign(text.removesuffix(": "), LEAF_CHARACTERS) for text in [*inner][:LEAVES_MOST]]
    if (more := len(inner) - len(shown)) > 0:
        shown.append(f"and {more:,} more")
    group = f"({'; '.join(shown)})" if shown else ""
    return foreign(f"{_text(error, whole)} {group}".strip(), most)


def _text(error: BaseException, whole: bool) -> str:
    if masking() and not whole:
        return ""
    try:
        text = redact(str(error.message if isinstance(error, BaseExceptionGroup) else error))
    except Exception as worse:
        return f"its text is not available ({type(worse).__name__})"
    return " ".join(text.split()) if whole else next(iter(text.strip().splitlines()), "")


def describe(error: BaseException) -> str:
    """Describe an exception in one line: its type and, if it has one, its text."""
    return foreign(f"{type(error).__name__}: {error_text(error)}".removesuffix(": "))
