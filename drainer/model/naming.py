"""Names for what belongs to a topic and a group, one for each pair of them."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)  # of a group: in `a.b.c` the topic is `a.b`


def name_of(topic: str, group: str, ending: str, most: int) -> str:
    """``TOPIC.GROUP`` and the ending, or ``TOPIC.GROUP-DIGEST``, in at most so many characters.

    The digest is there where the plain name is too long, or another topic and group could have it
    as well: ``a.b`` and ``c`` that of ``a`` and ``b.c``, and ``b/c`` that of ``b-c``. Topics are
    those that Kafka allows; a group may have any characters.
    """
    name = f"{topic}.{group}{ending}"
    if _PLAIN.fullmatch(group) and len(name) <= most:
        return name
    both = f"{topic}\0{group}".encode("utf-8", "backslashreplace")
    end = f"-{hashlib.sha256(both).hexdigest()[:16]}{ending}"
    readable = "".join(c if _PLAIN.fullmatch(c) else "-" for c in group)
    return f"{topic}.{readable}"[: most - len(end)] + end
