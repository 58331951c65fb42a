"""Makes text from elsewhere safe: as one line for people, and as JSON for programs.

Sub-keys, payloads, headers, errors and names come from whoever writes to the topic, answers a
request or sends a plan. Unless it is escaped, such text could forge lines, hide or reverse other
text, or send commands to the terminal. Half of a surrogate pair could not even be written.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from drainer.text.secret import redact

# At most this many characters of a text from elsewhere are kept: 25 lines of 80 characters.
SCREEN = 2_000

# Characters that Python calls printable although they are invisible: fillers, joiners and variation
# selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def foreign(text: str, most: int = SCREEN) -> str:
    """Return a text from elsewhere as drainer keeps it: printable, short and without secrets.

    ``DrainerError``, ``mask.describe`` and the client's log call this for every text that they
    take in, so that code that writes or shows these texts need not. Secrets are replaced before the
    text is cut, because a part of a secret is secret, too.
    """
    safe = printable(redact(text)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 1]}…"


def printable(text: str) -> str:
    """Return the text as one line of visible characters.

    All other characters are spelled out, as in ``\\n``, ``\\x1b`` or ``\\u202e``.
    """
    if is_printable(text):
        return text
    return "".join(
        char if is_printable(char) else char.encode("unicode_escape").decode() for char in text
    )


def is_printable(text: str) -> bool:
    """Return whether all characters of a text are visible.

    Line breaks, control characters, marks of direction and halves of surrogate pairs are not.
    """
    return text.isprintable() and not _UNSEEN.search(text)


def encodable(text: str) -> str:
    """Return the text with halves of surrogate pairs escaped, because UTF-8 can't encode them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def repr_of(value: object) -> str:
    """Return the repr of a value. It never raises, although the repr may be the user's own code."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def command(verb: str, *words: str | Path, options: Sequence[str] = ()) -> str:
    """Return a command that can be copied into a shell, such as ``drainer resume 'my plan.json'``.

    A word that begins with a dash gets ``./`` before it, so that it is not taken for an option.
    """
    paths = [f"./{word}" if str(word).startswith("-") else str(word) for word in words]
    return shlex.join(["drainer", *verb.split(), *paths, *options])


# A command in a sentence that can be run as it is: it has more than the names of commands, and
# nothing in capitals that a person has to fill in.
_WHOLE = re.compile(
    r"`(drainer (?:ps|(?:[a-z]+ )+(?!(?:[a-z]+ )*[a-z]+`)(?:(?!\b[A-Z]{3,}\b)[^`…])+))`"
)


def command_in(text: str) -> str | None:
    """Return the first command in a sentence that can be run as it is; None if there is none."""
    found = _WHOLE.search(text)
    return None if found is None else found[1]


def json_text(obj: object, *, indent: bool = False) -> str:
    """Return an object as JSON that any parser can read, without control characters.

    In addition to what orjson accepts, the object may contain raw JSON, keys that are not strings,
    halves of surrogate pairs and numbers beyond 64 bits. Anything else is written as its ``repr``.
    """
    import msgspec  # noqa: PLC0415
    import orjson  # noqa: PLC0415 - streams are escaped before anything needs JSON

    def written(obj: object) -> object:
        if isinstance(obj, msgspec.Raw):
            return orjson.Fragment(msgspec.json.format(bytes(obj), indent=2 if indent else -1))
        return repr(obj)

    def plain(obj: object) -> object:
        return msgspec.json.decode(obj) if isinstance(obj, msgspec.Raw) else repr(obj)

    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        text = orjson.dumps(obj, default=written, option=option).decode()
    except TypeError:
        spaces = 2 if indent else None
        ends = (",", ": ") if indent else (",", ":")
        text = json.dumps(_finite(obj), default=plain, indent=spaces, separators=ends)
    if is_printable(text):
        return text
    return "".join(
        char if char == "\n" or is_printable(char) else json.dumps(char)[1:-1] for char in text
    )


def _finite(obj: object) -> object:
    """Replace infinity and NaN by None, as orjson does, because JSON does not have them."""
    match obj:
        case float() if not math.isfinite(obj):
            return None
        case dict():
            return {key: _finite(value) for key, value in obj.items()}
        case list() | tuple():
            return [_finite(each) for each in obj]
    return obj


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


# The name of the error handler for characters that the encoding of a stream does not have. They are
# escaped as in JSON, so that JSON stays valid.
UNENCODABLE = "drainer.text.escape"
codecs.register_error(UNENCODABLE, _escape_unencodable)


def shorten(text: str, width: int) -> str:
    """Shorten a text to a width by leaving out its middle, because both ends of an id matter."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]
