"""Masking of personal data: keys and error texts, wherever they are made texts for people.

An environment variable switches it on, since it holds for a whole process and all that it
writes, whichever command that is. Its value is a secret that the masks are made with.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from hashlib import blake2b

VARIABLE = "DRAINER_MASK_KEYS"
MASKED = "(masked)"
_DIGITS_BYTES = 4


def secret() -> str:
    """Secret that the masks are made with; empty when nothing is masked."""
    return os.environ.get(VARIABLE, "")


def use(found: str) -> None:
    """Masks in this process as another one does, whose ``secret`` this is."""
    if found:
        os.environ[VARIABLE] = found


def masking() -> bool:
    """Whether personal data is masked."""
    return bool(secret())


def mask_text(text: str) -> str:
    """``key#3fa9c1d2`` for the text of a key, if masking is on.

    The same text and secret give the same mask. Without the secret it can't be found out by trying.
    """
    if not masking():
        return text
    salt = blake2b(os.fsencode(secret())).digest()
    data = text.encode("utf-8", "backslashreplace")
    return f"key#{blake2b(data, digest_size=_DIGITS_BYTES, key=salt).hexdigest()}"


def key_repr(key: Hashable) -> str:
    """The repr of a sub-key, masked if masking is on.

    Never raises: a ``__repr__`` may be the user's own code.
    """
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__}>"
    return mask_text(text)


def error_text(error: BaseException) -> str:
    """Text of an exception, which may be anything; empty if masking is on.

    Never raises: a ``__str__`` may be the user's own code.
    """
    if masking():
        return ""
    try:
        return str(error)
    except Exception as worse:
        return f"its text is not available ({type(worse).__name__})"


def describe(error: BaseException) -> str:
    """Describe an exception in one line: its type and, if it has one, its text."""
    text = error_text(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
